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
  look?: "primary" | "danger" | undefined;
  busy?: boolean;
  onConfirm: () => void;
  onCancel: () => void;
};

/** A question before an action that destroys or cannot be undone. */
export function Confirm(props: Props) {
  const { opened, title, children, action, look = "danger", busy = false } = props;
  const { onConfirm, onCancel } = props;
  // What has begun cannot be cancelled, so the dialog waits for its result.
  const close = () => busy || onCancel();
  return (
    <Modal opened={opened} onClose={close} title={title} centered size="md">
      <div className={css.text}>{children}</div>
      <div className={css.actions}>
        <Button onClick={close} disabled={busy} data-autofocus>
          Cancel
        </Button>
        <Button look={look} busy={busy} onClick={onConfirm}>
          {action}
        </Button>
      </div>
    </Modal>
  );
}
