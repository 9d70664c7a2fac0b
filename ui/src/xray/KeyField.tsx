import { useId, useState } from "react";

import { Button } from "~/design";

import { setKeys, useKeys } from "./keys";
import css from "./Proof.module.css";

/** The keys for signatures: they stay in this page, and are not stored. */
export function KeyField() {
  const keys = useKeys();
  const [isOpen, setOpen] = useState(keys !== "");
  const id = useId();
  if (!isOpen) {
    return (
      <Button look="quiet" className={css.reveal} onClick={() => setOpen(true)}>
        Check the signature with a public key…
      </Button>
    );
  }
  return (
    <div className={css.keys}>
      <label htmlFor={id}>Public keys, one on each line</label>
      <textarea
        id={id}
        rows={2}
        value={keys}
        placeholder="ed25519-pub:ID:BASE64"
        autoComplete="off"
        spellCheck={false}
        aria-describedby={`${id}-source`}
        onChange={(event) => setKeys(event.target.value)}
      />
      <p id={`${id}-source`}>
        <code>headwater keys signing public</code> prints them where the server is configured. Get
        them from its operator, not from the sender of a record. They stay in this page until it is
        reloaded.
      </p>
    </div>
  );
}
