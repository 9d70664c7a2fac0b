import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useSearchParams } from "wouter";

import type { Schema } from "~/api/client";
import { ProblemError } from "~/api/problems";
import {
  BackTitle,
  Button,
  Card,
  Code,
  CopyAs,
  Empty,
  ErrorPanel,
  Id,
  KeyValues,
  Mono,
  Skeleton,
  StateBadge,
  Tag,
  Time,
  UserText,
  type Call,
} from "~/design";
import { useDraft } from "~/design/draft";
import { duration, plural } from "~/design/format";
import { ParameterFields } from "~/parameters/ParameterFields";
import { objectOf, parsed, textsOf, type Texts } from "~/parameters/parameters";

import { ChunkList } from "./ChunkList";
import { conditions, modeWords } from "./chunks";
import type { Retriever } from "./Lists";
import { retrieved } from "./queries";
import css from "./Retrievers.module.css";

type Props = { retriever: Retriever; onClose: () => void };

/** One retriever: its options, and a query to try. */
export function RetrieverDetail({ retriever, onClose }: Props) {
  const [search, setSearch] = useSearchParams();
  const given = search.get("params");
  const sent = given === null ? null : objectOf(given);
  const [texts, setTexts] = useDraft<Texts>(given ?? "", textsOf(retriever.parameters, sent ?? {}));
  const [wasSent, setWasSent] = useState(false);
  const query = useQuery(retrieved(retriever.name, sent));
  const { params, problems } = parsed(retriever.parameters, texts);
  const send = () => {
    setWasSent(true);
    if (Object.keys(problems).length > 0) return;
    const text = JSON.stringify(params);
    // The same question again shows whether its results are cached.
    if (text === given) void query.refetch();
    else setSearch({ retriever: retriever.name, params: text });
  };
  return (
    <div className={css.stack}>
      <Card
        title={
          <BackTitle onClose={onClose}>
            <Mono>{retriever.name}</Mono>
          </BackTitle>
        }
        aside={<CopyAs call={callOf(retriever.name, params)} />}
      >
        <div className={css.stack}>
          {retriever.description !== "" && <p>{retriever.description}</p>}
          <Options retriever={retriever} />
          <form
            className={css.form}
            aria-label="Arguments of the retriever"
            onSubmit={(event) => {
              event.preventDefault();
              send();
            }}
          >
            <ParameterFields
              parameters={retriever.parameters}
              texts={texts}
              onChange={setTexts}
              problems={{ ...(wasSent ? problems : {}), ...refused(query.error) }}
            />
            <div>
              <Button type="submit" look="primary" busy={query.isFetching}>
                Search
              </Button>
            </div>
          </form>
        </div>
      </Card>
      {sent !== null && (
        <Results
          found={query.isError ? undefined : query.data}
          error={query.error}
          retry={() => void query.refetch()}
        />
      )}
    </div>
  );
}

function Options({ retriever }: { retriever: Retriever }) {
  const { index, mode, top_k, cache_ttl_ms, freshness_sla_ms, on_error, timeout_ms, record } =
    retriever;
  return (
    <p className={css.tags}>
      {index === null ? (
        <Tag>function</Tag>
      ) : (
        <Link href={`/retrievers?${new URLSearchParams({ index }).toString()}`}>index {index}</Link>
      )}
      {mode !== null && <Tag>{modeWords(mode)}</Tag>}
      {top_k !== null && <Tag>top {top_k}</Tag>}
      {cache_ttl_ms !== null && <Tag>cached for {duration(cache_ttl_ms)}</Tag>}
      {freshness_sla_ms !== null && <Tag>SLA {duration(freshness_sla_ms)}</Tag>}
      {timeout_ms !== null && <Tag>timeout {duration(timeout_ms)}</Tag>}
      {on_error === "empty" && <Tag>empty on errors</Tag>}
      {record && <Tag>results recorded</Tag>}
    </p>
  );
}

type ResultsProps = {
  found: Schema<"Retrieved"> | undefined;
  error: Error | null;
  retry: () => void;
};

function Results({ found, error, retry }: ResultsProps) {
  if (error !== null) return <ErrorPanel error={error} retry={retry} />;
  if (found === undefined) return <Skeleton lines={6} />;
  return (
    <>
      <Card title="Search" aside={<Freshness found={found} />}>
        <KeyValues rows={factsOf(found)} />
      </Card>
      {found.chunks.length === 0 ? (
        <Empty title={found.failed ? "The search failed" : "Nothing was found"}>
          {found.failed
            ? "The retriever is declared with on_error=“empty”, so a context gets no chunks. The server log has the cause."
            : "No chunk matches. Try other words, or look at the documents of the index."}
        </Empty>
      ) : (
        <ChunkList
          hits={found.chunks}
          index={found.index?.name ?? null}
          mode={found.index?.mode ?? null}
        />
      )}
    </>
  );
}

function Freshness({ found }: { found: Schema<"Retrieved"> }) {
  if (found.failed) return <StateBadge state="failed">failed</StateBadge>;
  if (found.is_fresh === null) return null;
  return found.is_fresh ? (
    <StateBadge state="fresh">fresh</StateBadge>
  ) : (
    <StateBadge state="failed">too old</StateBadge>
  );
}

function factsOf(found: Schema<"Retrieved">): [string, React.ReactNode][] {
  const { index, latency_ms, cached_at, is_cached, age_ms, chunks } = found;
  const filters = conditions(index?.filters ?? null);
  return [
    ["Found", `${plural(chunks.length, "chunk")} in ${duration(latency_ms)}`],
    [
      "Cache",
      is_cached ? (
        <>
          hit, found <Time at={cached_at} />
        </>
      ) : (
        "miss, searched now"
      ),
    ],
    ["Age", age_ms === null ? "unknown: it read a value without a moment" : duration(age_ms)],
    ["Query", index && <UserText mono>{index.query}</UserText>],
    ["Filters", filters.length === 0 ? null : <Code text={filters.join("\n")} />],
    ["Index", index && <IndexVersion {...index} />],
  ];
}

function IndexVersion({ name, version, embedder, mode }: Schema<"RetrievedIndex">) {
  return (
    <>
      {name} <Id value={version} head={4} tail={6} />, {modeWords(mode)}
      {embedder !== null && <>, embedder {embedder}</>}
    </>
  );
}

function refused(error: Error | null): Record<string, string> {
  if (!(error instanceof ProblemError)) return {};
  const { field } = error.problem;
  if (typeof field !== "string" || !field.startsWith("params.")) return {};
  return { [field.slice("params.".length)]: error.message };
}

function callOf(name: string, params: Record<string, unknown>): Call {
  return { method: "POST", path: `/v1/retrievers/${name}`, body: { params } };
}
