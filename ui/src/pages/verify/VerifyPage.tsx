import { IconFileCheck, IconX } from "@tabler/icons-react";
import { useRef, useState, type DragEvent } from "react";

import {
  Button,
  Card,
  CopyAs,
  Id,
  IconButton,
  KeyValues,
  PageHead,
  StateBadge,
  UserText,
} from "~/design";
import { count, plural } from "~/design/format";
import { KeyField, ProofLadder, useVerified, type Answer } from "~/xray";

import { claimsOf, documentsOf, type Document } from "./files";
import css from "./Verify.module.css";

/** Files are checked in this page: it works without a server, and nothing is sent to one. */
export default function VerifyPage() {
  const [documents, setDocuments] = useState<readonly Document[]>([]);
  const [keys, setKeys] = useState("");
  const add = async (files: Iterable<File>) => {
    const found = (await Promise.all([...files].map(documentsOf))).flat();
    setDocuments((known) => [...found, ...known]);
  };
  return (
    <>
      <PageHead
        tab="Verify"
        title="Verify"
        subtitle="Prove that a record was not changed since it was made. Files are checked in this page; nothing is sent anywhere."
        actions={<CopyAs call={CALL} />}
      />
      <div className={css.page}>
        <Card>
          <DropZone onFiles={(files) => void add(files)} />
          <KeyField keys={keys} onChange={setKeys} />
        </Card>
        {documents.length > 1 && (
          <div className={css.bar}>
            <span>{plural(documents.length, "document")}</span>
            <Button look="quiet" onClick={() => setDocuments([])}>
              Remove all
            </Button>
          </div>
        )}
        <div className={css.results} aria-live="polite">
          {documents.map((document) => (
            <Result
              key={document.key}
              document={document}
              keys={keys}
              onRemove={() =>
                setDocuments((known) => known.filter(({ key }) => key !== document.key))
              }
            />
          ))}
        </div>
      </div>
    </>
  );
}

const CALL = {
  path: "/v1/record/CONTEXT_ID",
  cli: ["context", "verify", "CONTEXT_ID"],
  python: 'records.verify("CONTEXT_ID")',
};

function DropZone({ onFiles }: { onFiles: (files: FileList) => void }) {
  const input = useRef<HTMLInputElement>(null);
  const [isOver, setOver] = useState(false);
  const onDrag = (event: DragEvent) => {
    event.preventDefault();
    setOver(event.type === "dragover");
    if (event.type === "drop") onFiles(event.dataTransfer.files);
  };
  return (
    <div
      className={isOver ? `${css.drop} ${css.over}` : css.drop}
      onDragOver={onDrag}
      onDragLeave={onDrag}
      onDrop={onDrag}
    >
      <IconFileCheck size={28} stroke={1.5} aria-hidden />
      <p className={css.lead}>Drop bundles here</p>
      <p className={css.hint}>
        A bundle of “Export bundle”, or of <code>headwater context export</code>, as JSON or zip.
        Several at once are fine.
      </p>
      <Button look="primary" onClick={() => input.current?.click()}>
        Choose files
      </Button>
      <input
        ref={input}
        type="file"
        multiple
        hidden
        aria-label="Bundles to verify"
        accept=".json,.zip,application/json,application/zip"
        onChange={(event) => {
          if (event.target.files) onFiles(event.target.files);
          event.target.value = "";
        }}
      />
    </div>
  );
}

type ResultProps = { document: Document; keys: string; onRemove: () => void };

function Result({ document, keys, onRemove }: ResultProps) {
  const text = "text" in document ? document.text : undefined;
  const answer = useVerified(text, keys, null);
  const claims = text === undefined ? null : claimsOf(text);
  const failure: Answer | null =
    "problem" in document ? { turn: 0, problem: document.problem, isDocument: false } : answer;
  return (
    <Card
      title={<UserText mono>{document.name}</UserText>}
      aside={
        <>
          <Badge answer={failure} />
          <IconButton label={`Remove ${document.name}`} onClick={onRemove}>
            <IconX size={15} />
          </IconButton>
        </>
      }
    >
      <div className={css.result}>
        <div>
          <ProofLadder answer={failure} />
        </div>
        {claims && (
          <KeyValues
            rows={[
              ["Context", claims.name && <UserText>{claims.name}</UserText>],
              ["Id", <Id key="id" value={claims.contextId} />],
              ["Record hash", <Id key="hash" value={claims.recordHash} head={15} />],
              ["Size", "size" in document ? `${count(document.size)} bytes` : null],
            ]}
          />
        )}
      </div>
    </Card>
  );
}

function Badge({ answer }: { answer: Answer | null }) {
  if (answer === null) return <StateBadge state="unknown">checking</StateBadge>;
  if ("problem" in answer) return <StateBadge state="failed">not checked</StateBadge>;
  if (!answer.report.ok) return <StateBadge state="failed">broken</StateBadge>;
  return <StateBadge state="fresh">verified</StateBadge>;
}
