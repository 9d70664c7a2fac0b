import { useId, useState } from "react";

import { Button } from "~/design";

import css from "./Proof.module.css";

/** Keys for the signature: they stay on this page, and are not stored. */
export function KeyField({ keys, onChange }: { keys: string; onChange: (keys: string) => void }) {
  const [isOpen, setOpen] = useState(false);
  const id = useId();
  if (!isOpen) {
    return (
      <Button look="quiet" className={css.reveal} onClick={() => setOpen(true)}>
        Check the signature with a key…
      </Button>
    );
  }
  return (
    <div className={css.keys}>
      <label htmlFor={id}>
        Keys, one on each line: <code>ed25519-pub:id:base64</code> or <code>id:secret</code>. They
        stay in this page.
      </label>
      <textarea
        id={id}
        rows={2}
        value={keys}
        autoComplete="off"
        spellCheck={false}
        onChange={(event) => onChange(event.target.value)}
      />
    </div>
  );
}
