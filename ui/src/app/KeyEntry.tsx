import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import type { ProblemError } from "~/api/problems";
import { currentKey, setKey } from "~/api/session";
import { Button, Field } from "~/design";

import css from "./KeyEntry.module.css";

/** Asks for the API key; it stays in this tab. */
export function KeyEntry({ error }: { error: ProblemError }) {
  const [text, setText] = useState("");
  const client = useQueryClient();
  const submit = () => {
    setKey(text.trim());
    void client.resetQueries();
  };
  return (
    <main className={css.page}>
      <form
        className={css.form}
        onSubmit={(event) => {
          event.preventDefault();
          submit();
        }}
      >
        <h1>Headwater</h1>
        <p>
          This server requires a key. It is kept in this tab until you close it, and sent to this
          server only.
        </p>
        <Field
          label="API key"
          type="password"
          name="key"
          autoFocus
          value={text}
          onChange={(event) => setText(event.target.value)}
          problem={currentKey() === null ? null : error.message}
        />
        <Button type="submit" look="primary" disabled={text.trim() === ""}>
          Continue
        </Button>
        <p className={css.hint}>
          An operator makes one with <code>headwater keys create</code>. A page that a key may not
          use is not shown.
        </p>
      </form>
    </main>
  );
}
