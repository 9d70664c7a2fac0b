import { useMutation } from "@tanstack/react-query";

import { Button, explained } from "~/design";

import { download, type Form } from "./exports";
import css from "./Proof.module.css";

type Props = { contextId: string; form: Form; children: string; look?: "plain" | "primary" };

/** A button that saves a record as a file, and says why if it cannot. */
export function DownloadButton({ contextId, form, children, look = "plain" }: Props) {
  const file = useMutation({ mutationFn: () => download(contextId, form) });
  return (
    <>
      <Button look={look} busy={file.isPending} onClick={() => file.mutate()}>
        {children}
      </Button>
      {file.isError && (
        <span role="alert" className={css.unsaved}>
          Not saved: {explained(file.error).meaning}
        </span>
      )}
    </>
  );
}
