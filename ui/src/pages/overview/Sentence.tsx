import { Mono } from "~/design";

import { words } from "./links";

/** A sentence in which commands and names stand out. */
export function Sentence({ children }: { children: string }) {
  return (
    <bdi dir="auto">
      {words(children).map(({ text, isCode }, index) =>
        isCode ? <Mono key={index}>{text}</Mono> : text,
      )}
    </bdi>
  );
}
