import { useQuery, type UseQueryResult } from "@tanstack/react-query";
import { useSearchParams } from "wouter";

import type { Schema } from "~/api/client";
import {
  Button,
  Card,
  Choice,
  CopyAs,
  Empty,
  ErrorPanel,
  Field,
  Skeleton,
  type Call,
} from "~/design";
import { pythonValue } from "~/design/calls";
import { useDraft } from "~/design/draft";
import { objectOf } from "~/parameters/parameters";

import { ChunkList } from "./ChunkList";
import { MODES } from "./chunks";
import { searched, type Search } from "./queries";
import css from "./Retrievers.module.css";

/** A query of an index, without a retriever. */
export function IndexSearch({ index }: { index: string }) {
  const [address, setAddress] = useSearchParams();
  const sent = searchOf(objectOf(address.get("params")));
  const found = useQuery(searched(index, sent));
  return (
    <>
      <Card title="Try a query" aside={sent && <CopyAs call={callOf(index, sent)} />}>
        <SearchForm
          initial={sent}
          busy={found.isFetching}
          onSearch={(search) => setAddress({ index, params: JSON.stringify(search) })}
        />
      </Card>
      {sent !== null && <Found query={found} index={index} mode={sent.mode} />}
    </>
  );
}

function callOf(index: string, search: Search): Call {
  const { query, mode, filters } = search;
  const chosen = filters === undefined ? [] : ["--filter", JSON.stringify(filters)];
  return {
    method: "POST",
    path: `/v1/search/${index}`,
    body: search,
    cli: ["index", "search", index, query, "--mode", mode, ...chosen],
    python: `search(${pythonValue(index)}, ${pythonValue(query)}, mode=${pythonValue(mode)}, filters=${pythonValue(filters)})`,
  };
}

/** Return the search of an address; null if it has none. */
function searchOf(params: Record<string, unknown>): Search | null {
  const { query, mode, filters } = params;
  if (typeof query !== "string" || query.trim() === "") return null;
  return {
    query,
    mode: MODES.find(([each]) => each === mode)?.[0] ?? "vector",
    ...(typeof filters === "object" && filters !== null ? { filters: { ...filters } } : {}),
  };
}

type FormProps = { initial: Search | null; busy: boolean; onSearch: (search: Search) => void };

function SearchForm({ initial, busy, onSearch }: FormProps) {
  const of = JSON.stringify(initial);
  const [query, setQuery] = useDraft(of, initial?.query ?? "");
  const [mode, setMode] = useDraft<string>(of, initial?.mode ?? "vector");
  const [text, setText] = useDraft(of, initial?.filters ? JSON.stringify(initial.filters) : "");
  const filters = text.trim() === "" ? undefined : objectOf(text);
  const isInvalid = filters !== undefined && Object.keys(filters).length === 0;
  return (
    <form
      className={css.search}
      aria-label="Search of the index"
      onSubmit={(event) => {
        event.preventDefault();
        const search = searchOf({ query, mode, filters });
        if (search !== null && !isInvalid) onSearch(search);
      }}
    >
      <Field
        label="Query"
        value={query}
        placeholder="How long do parcels take?"
        onChange={(event) => setQuery(event.target.value)}
      />
      <Choice label="Search" value={mode} onChange={setMode} options={MODES} />
      <Field
        label="Filters"
        value={text}
        placeholder='{"lang": "en"}'
        problem={isInvalid ? 'Give a JSON object, such as {"lang": "en"}.' : null}
        onChange={(event) => setText(event.target.value)}
      />
      <Button type="submit" look="primary" busy={busy}>
        Search
      </Button>
    </form>
  );
}

type FoundProps = { query: UseQueryResult<Schema<"SearchHits">>; index: string; mode: string };

function Found({ query, index, mode }: FoundProps) {
  if (query.isError) return <ErrorPanel error={query.error} retry={() => void query.refetch()} />;
  if (query.data === undefined) return <Skeleton lines={6} />;
  if (query.data.chunks.length === 0) {
    return <Empty title="Nothing was found">Try other words, another mode or no filters.</Empty>;
  }
  return <ChunkList hits={query.data.chunks} index={index} mode={mode} />;
}
