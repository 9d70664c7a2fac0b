import { IconArrowLeft } from "@tabler/icons-react";
import type { ReactNode } from "react";

import css from "./BackTitle.module.css";
import { IconButton } from "./Button";

type Props = {
  /** What the list shows, such as "all values". */
  to?: string;
  onClose: () => void;
  children: ReactNode;
};

/** The name of the selected thing; on a phone with a way back to the list. */
export function BackTitle({ to = "the list", onClose, children }: Props) {
  return (
    <span className={css.title}>
      <span className={css.back}>
        <IconButton label={`Back to ${to}`} onClick={onClose}>
          <IconArrowLeft size={16} />
        </IconButton>
      </span>
      {children}
    </span>
  );
}
