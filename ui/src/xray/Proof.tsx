import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { Card, ErrorPanel, Id } from "~/design";

import { DownloadButton } from "./DownloadButton";
import { recordText } from "./exports";
import { KeyField } from "./KeyField";
import { ProofLadder } from "./ProofLadder";
import { useVerified } from "./verification";
import css from "./Proof.module.css";

type Props = {
  contextId: string;
  /** The hash that the page shows; null if the record cannot be read. */
  recordHash: string | null;
};

/** The proof of a record, computed in this browser by the independent verifier. */
export function Proof({ contextId, recordHash }: Props) {
  const [keys, setKeys] = useState("");
  const record = useQuery(recordText(contextId));
  const answer = useVerified(record.data, keys, recordHash ?? contextId);
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
          <KeyField keys={keys} onChange={setKeys} />
          <div className={css.downloads}>
            <DownloadButton contextId={contextId} form="bundle">
              Bundle
            </DownloadButton>
            {recordHash !== null && (
              <>
                <DownloadButton contextId={contextId} form="json">
                  JSON
                </DownloadButton>
                <DownloadButton contextId={contextId} form="yaml">
                  YAML
                </DownloadButton>
              </>
            )}
            <DownloadButton contextId={contextId} form="core">
              Core bytes
            </DownloadButton>
          </div>
        </>
      )}
    </Card>
  );
}
