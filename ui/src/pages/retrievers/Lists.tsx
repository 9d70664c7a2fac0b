import type { Schema } from "~/api/client";
import { DataTable, Dim, Mono, StateWord, Time, type Column } from "~/design";
import { count, duration } from "~/design/format";

import { differences, modeWords, type Index } from "./chunks";

export type Retriever = Schema<"RetrieverListing">;

type Selection = { selected: string | null; onSelect: (name: string) => void };

const RETRIEVER_COLUMNS: readonly Column<Retriever>[] = [
  { head: "Name", cell: ({ name }) => <Mono>{name}</Mono> },
  {
    head: "Searches",
    cell: ({ index, mode }) =>
      index === null ? <Dim>a function</Dim> : `${index}, ${modeWords(mode)}`,
  },
  {
    head: "Cache",
    number: true,
    secondary: true,
    cell: ({ cache_ttl_ms }) => (cache_ttl_ms === null ? <Dim>—</Dim> : duration(cache_ttl_ms)),
  },
];

export function RetrieverList({
  retrievers,
  selected,
  onSelect,
}: Selection & { retrievers: readonly Retriever[] }) {
  return (
    <DataTable
      label="Retrievers"
      columns={RETRIEVER_COLUMNS}
      rows={retrievers}
      rowKey={({ name }) => name}
      onOpen={({ name }) => onSelect(name)}
      isSelected={({ name }) => name === selected}
    />
  );
}

const INDEX_COLUMNS: readonly Column<Index>[] = [
  { head: "Name", cell: ({ name }) => <Mono>{name}</Mono> },
  { head: "Documents", number: true, cell: ({ documents }) => count(documents) },
  { head: "Chunks", number: true, secondary: true, cell: ({ chunks }) => count(chunks) },
  { head: "Changed", number: true, cell: ({ changed_at }) => <Time at={changed_at} /> },
  { head: "State", cell: (index) => <IndexState index={index} /> },
];

export function IndexList({
  indexes,
  selected,
  onSelect,
}: Selection & { indexes: readonly Index[] }) {
  return (
    <DataTable
      label="Indexes"
      columns={INDEX_COLUMNS}
      rows={indexes}
      rowKey={({ name }) => name}
      onOpen={({ name }) => onSelect(name)}
      isSelected={({ name }) => name === selected}
    />
  );
}

/** Whether an index is as declared, and whether all its documents are in it. */
export function IndexState({ index }: { index: Index }) {
  if (!index.is_declared) return <StateWord state="unknown">not declared</StateWord>;
  if (index.version === null) return <StateWord state="unknown">empty</StateWord>;
  if (index.building !== null) return <StateWord state="ageing">building</StateWord>;
  if (differences(index).length > 0) return <StateWord state="ageing">outdated</StateWord>;
  if (index.outdated > 0) return <StateWord state="ageing">indexing</StateWord>;
  return <StateWord state="fresh">current</StateWord>;
}
