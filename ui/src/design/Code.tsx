import { IconCheck, IconCopy } from "@tabler/icons-react";

import { IconButton } from "./Button";
import { useCopied } from "./clipboard";
import css from "./Code.module.css";

/** Code or a command, copied by one click. */
export function Code({ text, label = "Copy" }: { text: string; label?: string }) {
  const [copied, copy] = useCopied();
  return (
    <div className={css.code}>
      {/* A region that scrolls must be reachable by keyboard. */}
      <pre tabIndex={0}>{text}</pre>
      <IconButton label={copied ? "Copied" : label} onClick={() => copy(text)}>
        {copied ? <IconCheck size={15} /> : <IconCopy size={15} />}
      </IconButton>
    </div>
  );
}
