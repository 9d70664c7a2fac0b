import {
  BackTitle,
  Card,
  Code,
  DataTable,
  Empty,
  Id,
  KeyValues,
  Mono,
  StateWord,
  Time,
  type Column,
} from "~/design";
import { count } from "~/design/format";

import { differences, type Index } from "./chunks";
import { IndexSearch } from "./IndexSearch";
import { IndexState } from "./Lists";
import css from "./Retrievers.module.css";

type Generation = Index["generations"][number];

const STATES = { active: "fresh", building: "ageing", retired: "unknown" } as const;

const GENERATIONS: readonly Column<Generation>[] = [
  { head: "Generation", number: true, cell: ({ number }) => number },
  { head: "State", cell: ({ state }) => <StateWord state={STATES[state]}>{state}</StateWord> },
  { head: "Documents", number: true, cell: ({ documents }) => count(documents) },
  { head: "Chunks", number: true, secondary: true, cell: ({ chunks }) => count(chunks) },
  { head: "Missing", number: true, secondary: true, cell: ({ outdated }) => count(outdated) },
  { head: "Embedder", secondary: true, cell: ({ spec }) => <code>{spec.embedder}</code> },
  { head: "Created", number: true, cell: ({ created_at }) => <Time at={created_at} /> },
];

/** One index: what is in it, how it was built, and a query to try. */
export function IndexDetail({ index, onClose }: { index: Index; onClose: () => void }) {
  const changes = differences(index);
  return (
    <div className={css.stack}>
      <Card
        title={
          <BackTitle onClose={onClose}>
            <Mono>{index.name}</Mono>
          </BackTitle>
        }
        aside={<IndexState index={index} />}
      >
        <div className={css.stack}>
          <KeyValues
            rows={[
              ["Version", index.version && <Id value={index.version} head={4} tail={6} />],
              ["Documents", count(index.documents)],
              ["Chunks", count(index.chunks)],
              ["Changed", index.changed_at && <Time at={index.changed_at} show="exact" />],
              ["Embedder", index.spec && <code>{index.spec.embedder}</code>],
              ["Chunks of", index.spec && `${index.spec.chunk_tokens} tokens`],
            ]}
          />
          {changes.length > 0 && (
            <div className={css.notice}>
              <p>The index was built in another way than it is declared: {changes.join("; ")}.</p>
              <Code text={`headwater index reindex ${index.name}`} />
            </div>
          )}
        </div>
      </Card>
      {index.generations.length > 0 && (
        <Card title="Generations" flush>
          <DataTable
            label="Generations of the index"
            columns={GENERATIONS}
            rows={[...index.generations].reverse()}
            rowKey={({ number }) => number}
          />
        </Card>
      )}
      {index.version === null ? (
        <Empty title="This index is empty" command={`headwater index build ${index.name} docs/`}>
          Index documents, for example all files of a folder:
        </Empty>
      ) : (
        <IndexSearch index={index.name} />
      )}
    </div>
  );
}
