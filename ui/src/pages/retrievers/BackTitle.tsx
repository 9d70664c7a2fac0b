import { IconArrowLeft } from "@tabler/icons-react";

import { IconButton } from "~/design";

import css from "./Retrievers.module.css";

/** The name of the selected thing; on a phone with a way back to the list. */
export function BackTitle({ name, onClose }: { name: string; onClose: () => void }) {
  return (
    <span className={css.title}>
      <span className={css.back}>
        <IconButton label="Back to the list" onClick={onClose}>
          <IconArrowLeft size={16} />
        </IconButton>
      </span>
      <span className={css.name}>{name}</span>
    </span>
  );
}
