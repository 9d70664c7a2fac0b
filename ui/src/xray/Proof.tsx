import { useQuery } from "@tanstack/react-query";

import { Card, ErrorPanel, Id } from "~/design";

import { DownloadButton } from "./DownloadButton";
import { recordText } from "./exports";
import { KeyField } from "./KeyField";
import { useKeys } from "./keys";
import { ProofLadder } from "./ProofLadder";
import { Redactions } from "./Redactions";
import { useVerified } from "./verification";
import css from "./Proof.module.css";

type Props = {
  contextId: string;
  /** The hash that the page shows; null if the record cannot be read. */
  recordHash: string | null;
};

/** The proof of a record, computed in this browser by the independent verifier. */
export function Proof({ contextId, recordHash }: Props) {
  const record = useQuery(recordText(contextId));
  const answer = useVerified(record.data, useKeys(), recordHash ?? contextId);
  return (
    <Card
      title="Proof, checked in this browser"
      aside={recordHash !== null && <Id value={recordHash} head={15} tail={4} />}
    >
      {record.isError && record.data === undefined ? (
        <ErrorPanel error={record.error} retry={() => void record.refetch()} />
      ) : (
        <>
          <ProofLadder answer={answer} />
          <Redactions contextId={contextId} />
          <KeyField />
          <Downloads contextId={contextId} isReadable={recordHash !== null} />
        </>
      )}
    </Card>
  );
}

type DownloadsProps = {
  contextId: string;
  /** A damaged record cannot be explained. */
  isReadable: boolean;
};

/** Forms for people, apart from the document that is evidence. */
function Downloads({ contextId, isReadable }: DownloadsProps) {
  return (
    <div className={css.downloads}>
      <p>
        The evidence is the file of “Export record”.{" "}
        <code>headwater context export ID --bundle FILE.zip</code> adds a verifier that works
        offline. The files below are for reading; Verify does not take them.
      </p>
      {isReadable && (
        <>
          <DownloadButton contextId={contextId} form="json">
            Explanation (JSON)
          </DownloadButton>
          <DownloadButton contextId={contextId} form="yaml">
            Explanation (YAML)
          </DownloadButton>
        </>
      )}
      <DownloadButton contextId={contextId} form="core">
        Core bytes
      </DownloadButton>
    </div>
  );
}
