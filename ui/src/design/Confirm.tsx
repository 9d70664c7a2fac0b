import { Modal } from "@mantine/core";
import type { ReactNode } from "react";

import { Button } from "./Button";
import css from "./Confirm.module.css";

type Props = {
  opened: boolean;
  title: string;
  /** What will happen, to what, and whether it can be undone. */
  children: ReactNode;
  /** The verb of the action: "Discard 3 letters". */
  action: string;
  busy?: boolean;
  onConfirm: () => void;
  onCancel: () => void;
};

/** A question before an action that destroys or cannot be undone. */
export function Confirm({ opened, title, children, action, busy, onConfirm, onCancel }: Props) {
  return (
    <Modal opened={opened} onClose={onCancel} title={title} centered size="md">
      <div className={css.text}>{children}</div>
      <div className={css.actions}>
        <Button onClick={onCancel} data-autofocus>
          Cancel
        </Button>
        <Button look="danger" busy={busy ?? false} onClick={onConfirm}>
          {action}
        </Button>
      </div>
    </Modal>
  );
}
