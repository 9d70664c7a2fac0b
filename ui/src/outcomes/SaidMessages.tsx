import { PartText } from "~/messages";

import css from "./Answers.module.css";
import type { Message } from "./model";

/** The parts of messages that a model answered, or should have answered. */
export function SaidMessages({ messages }: { messages: readonly Message[] }) {
  return messages.flatMap(({ parts }, at) =>
    parts.map((part, index) => (
      <div key={`${at} ${index}`} className={css.text} dir="auto">
        {part.type === "reasoning" && part.content !== "" ? (
          <details className={css.fold}>
            <summary>
              <PartText part={part} />
            </summary>
            <p>{part.content}</p>
          </details>
        ) : (
          <PartText part={part} />
        )}
      </div>
    )),
  );
}
