import { IconFileCheck, IconX } from "@tabler/icons-react";
import { useRef, useState, type DragEvent } from "react";

import { Button, Card, Id, IconButton, KeyValues, PageHead, useCopied, UserText } from "~/design";
import { count, plural } from "~/design/format";
import { KeyField, ProofBadge, ProofLadder, useKeys, useVerified, type Answer } from "~/xray";

import { claimsOf, documentsOf, type Document } from "./files";
import css from "./Verify.module.css";

/** Files are checked in this page: it works without a server, and nothing is sent to one. */
export default function VerifyPage() {
  const [documents, setDocuments] = useState<readonly Document[]>([]);
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
        actions={<CopyCommand />}
      />
      <div className={css.page}>
        <Card>
          <DropZone onFiles={(files) => void add(files)} />
          <KeyField />
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

const COMMAND = "headwater context verify --document record.json";

function CopyCommand() {
  const [copied, copy] = useCopied();
  return (
    <Button title={COMMAND} onClick={() => copy(COMMAND)}>
      {copied ? "Copied" : "Copy as command"}
    </Button>
  );
}

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
      <p className={css.lead}>Drop records here</p>
      <p className={css.hint}>
        The file of “Export record” or of <code>headwater context export</code>, or a zip file of
        its option <code>--bundle</code>, which has a verifier that works offline. Several at once
        are fine.
      </p>
      <Button look="primary" onClick={() => input.current?.click()}>
        Choose files
      </Button>
      <input
        ref={input}
        type="file"
        multiple
        hidden
        aria-label="Records to verify"
        accept=".json,.zip,application/json,application/zip"
        onChange={(event) => {
          if (event.target.files) onFiles(event.target.files);
          event.target.value = "";
        }}
      />
    </div>
  );
}

type ResultProps = { document: Document; onRemove: () => void };

function Result({ document, onRemove }: ResultProps) {
  const text = "text" in document ? document.text : undefined;
  const answer = useVerified(text, useKeys(), null);
  const claims = text === undefined ? null : claimsOf(text);
  const failure: Answer | null =
    "problem" in document ? { turn: 0, problem: document.problem, isDocument: false } : answer;
  return (
    <Card
      title={<UserText mono>{document.name}</UserText>}
      aside={
        <>
          <ProofBadge answer={failure} />
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
              ["Outcomes", claims.outcomes ? count(claims.outcomes) : null],
              ["Size", "size" in document ? `${count(document.size)} bytes` : null],
            ]}
          />
        )}
      </div>
    </Card>
  );
}
