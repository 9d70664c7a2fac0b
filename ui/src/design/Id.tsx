import { Tooltip } from "@mantine/core";

import { useCopied } from "./clipboard";
import { shortened } from "./format";
import css from "./text.module.css";

type Props = { value: string; head?: number; tail?: number; tabIndex?: number };

/** An id with its middle left out; a click copies the whole of it. */
export function Id({ value, head, tail, tabIndex }: Props) {
  const [copied, copy] = useCopied();
  const shown = shortened(value, head, tail);
  return (
    <Tooltip
      label={copied ? "Copied" : `${value} · click to copy`}
      openDelay={300}
      maw={480}
      multiline
    >
      <button
        type="button"
        className={css.id}
        tabIndex={tabIndex}
        aria-label={shown === value ? `Copy ${value}` : `${shown}, copy ${value}`}
        onClick={(event) => {
          event.stopPropagation();
          copy(value);
        }}
      >
        <bdi className={copied ? css.copied : undefined}>{shown}</bdi>
      </button>
    </Tooltip>
  );
}
