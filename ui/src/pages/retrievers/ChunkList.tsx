import { Link } from "wouter";

import { useCan } from "~/api/me";
import { Card, Dim, Id, Tag, Time, UserText } from "~/design";
import { inline, plural } from "~/design/format";
import { impactOf } from "~/xray/links";

import { shareOf, type Hit } from "./chunks";
import css from "./Retrievers.module.css";

type ListProps = {
  hits: readonly Hit[];
  index: string | null;
  /** How the index was searched; null for a function that searched. */
  mode: string | null;
};

/** Chunks, the best first: score, document, age, metadata and text. */
export function ChunkList({ hits, index, mode }: ListProps) {
  return (
    <Card title="Chunks" aside={<Dim>{plural(hits.length, "chunk")}, the best first</Dim>} flush>
      <ol className={css.chunks}>
        {hits.map((hit, place) => (
          <li key={`${hit.id ?? ""}/${place}`}>
            <Chunk hit={hit} place={place + 1} mode={mode} index={index} />
          </li>
        ))}
      </ol>
    </Card>
  );
}

type Props = { hit: Hit; place: number; mode: string | null; index: string | null };

function Chunk({ hit, place, mode, index }: Props) {
  const { id, score, text, metadata } = hit;
  return (
    <article className={css.chunk}>
      <Source hit={hit} place={place} index={index} />
      <Score score={score} mode={mode} />
      <p className={css.text} dir="auto" tabIndex={0}>
        <UserText mono>{text}</UserText>
      </p>
      <footer className={css.tags}>
        {Object.entries(metadata).map(([name, value]) => (
          <Tag key={name}>
            <bdi>
              {name}: {inline(value)}
            </bdi>
          </Tag>
        ))}
        {id !== null && <Id value={id} head={18} tail={6} />}
      </footer>
    </article>
  );
}

function Source({ hit, place, index }: Omit<Props, "mode">) {
  const maySeeRecords = useCan("GET /v1/contexts/by-provenance");
  const { document, id, indexed_at, position, version } = hit;
  const impact = impactOf({ document, index, chunk: id });
  return (
    <header className={css.source}>
      <span className={css.place}>{place}</span>
      <strong>
        <UserText mono>{document ?? id ?? "without an id"}</UserText>
      </strong>
      {position !== null && <Dim>part {position + 1}</Dim>}
      {version !== null && <Dim>version {version}</Dim>}
      {indexed_at !== null && (
        <Dim>
          indexed <Time at={indexed_at} />
        </Dim>
      )}
      {maySeeRecords && impact !== null && <Link href={impact}>Who saw it</Link>}
    </header>
  );
}

function Score({ score, mode }: { score: number | null; mode: string | null }) {
  if (score === null) return <Dim>no score</Dim>;
  const share = shareOf(score, mode);
  return (
    <div className={css.score}>
      {share !== null && (
        <span className={css.bar} aria-hidden>
          <span style={{ width: `${share * 100}%` }} />
        </span>
      )}
      <span>score {Number(score.toPrecision(4))}</span>
    </div>
  );
}
