/** What the X-ray shows of a trace, derived once and shared by all its parts. Pure. */
import type { Schema } from "~/api/client";
import { sourceColor } from "~/design";
import { count, shortened } from "~/design/format";

import { partLabel, placesOf, type Placed } from "./lanes";

export type Trace = Schema<"ContextTrace">;
export type Item = Schema<"ItemTrace">;
export type Read = Schema<"FeatureLineage">;
export type Value = Schema<"InputLineage">;
export type Search = Schema<"RetrieverTrace">;
export type Found = Schema<"ResultTrace">;
type Nested = Schema<"NestedLineage">;
export type Cause = Schema<"ValueCause">;

/** A value is shown, or the record only commits to it: erased later, or left out of this copy. */
export type Absence = "redacted" | "withheld";

/** The chunk that an item quotes: the search that found it, and its result. */
export type Quoted = { search: Search; at: number; found: Found; rank: number };

/** An item as all parts of the X-ray show it. */
export type ItemView = {
  /** The place in the trace. */
  place: number;
  item: Item;
  kind: string;
  /** What the item is called: a document, a section, the features of a template. */
  label: string;
  color: string;
  /** Its tokens in the text, or the tokens it would have added. */
  tokens: number;
  text: string | null;
  absence: Absence | null;
  isDropped: boolean;
  quoted: Quoted | null;
  nested: Nested | null;
  /** What it is in messages; null in a context without roles. */
  placed: Placed | null;
};

export type TraceView = {
  trace: Trace;
  /** The kept items in the order of the text, tools first, then the dropped ones. */
  items: readonly ItemView[];
  kept: number;
  /** Whether the context is messages. */
  isMessages: boolean;
  /** The index in `items` of the item at a place in the trace. */
  indexOf: (place: number) => number;
  absent: (pointer: string) => Absence | null;
};

export function viewOf(trace: Trace): TraceView {
  const redacted = new Set(trace.redacted);
  const withheld = new Set(trace.withheld);
  const absent = (pointer: string): Absence | null => {
    if (redacted.has(pointer)) return "redacted";
    return withheld.has(pointer) ? "withheld" : null;
  };
  const quotes = chunksOf(trace.retrievers);
  const contexts = new Map(trace.contexts.map((each) => [each.context_id, each]));
  const places = placesOf(trace.items);
  const all = trace.items.map((item, place): ItemView => {
    const source = sourceOf(item, quotes, contexts);
    const { quoted, nested } = source;
    const text = item.emitted ?? item.content;
    const isDropped = item.decision === "dropped";
    const placed = places?.[place] ?? null;
    const isPart = placed !== null && placed.message.kind !== "text";
    return {
      ...source,
      place,
      item,
      placed,
      kind: item.source_kind,
      label: isPart ? partLabel(placed, places ?? []) : labelOf(trace, item, quoted, nested),
      color: colorOf(item, source, placed),
      tokens: isDropped ? item.tokens : (item.width ?? item.emitted_tokens),
      text,
      absence: text === null ? (absent(`/items/${place}/content`) ?? "withheld") : null,
      isDropped,
    };
  });
  const kept = all.filter(({ isDropped }) => !isDropped);
  const isTool = ({ placed }: ItemView) => placed?.lane === "tools";
  const items = [
    ...kept.filter(isTool),
    ...kept.filter((item) => !isTool(item)),
    ...all.filter(({ isDropped }) => isDropped),
  ];
  const indices = new Map(items.map(({ place }, index) => [place, index]));
  return {
    trace,
    items,
    kept: kept.length,
    isMessages: places !== null,
    indexOf: (place) => indices.get(place) ?? 0,
    absent,
  };
}

/** The colour of its source; in messages, what was read from nowhere has that of its role. */
function colorOf(
  { source_kind: kind }: Item,
  { quoted, nested }: Pick<ItemView, "quoted" | "nested">,
  placed: Placed | null,
): string {
  const isSaid = placed !== null && (kind === "literal" || kind === "other");
  const name = quoted?.search.retriever ?? nested?.name ?? null;
  return sourceColor(isSaid ? { kind: placed.lane } : { kind, name });
}

/** The chunk or the inner context that an item quotes. */
function sourceOf(
  item: Item,
  chunks: Map<string, Quoted>,
  contexts: Map<string, Nested>,
): Pick<ItemView, "quoted" | "nested"> {
  const { source_kind: kind, source_ref: ref, content } = item;
  const key = kind === "retrieval" ? chunkKey(ref, content) : null;
  const nested = kind === "context" && typeof ref === "string" ? contexts.get(ref) : undefined;
  return { quoted: key === null ? null : (chunks.get(key) ?? null), nested: nested ?? null };
}

/** Chunks by id; several may have none, and are then known by their text. */
function chunksOf(searches: readonly Search[]): Map<string, Quoted> {
  const chunks = new Map<string, Quoted>();
  searches.forEach((search, at) =>
    search.results.forEach((found, rank) => {
      const key = chunkKey(found.id, found.content);
      if (key !== null && !chunks.has(key)) chunks.set(key, { search, at, found, rank });
    }),
  );
  return chunks;
}

function chunkKey(id: unknown, content: string | null): string | null {
  if (id !== null && id !== undefined) return `id ${JSON.stringify(id)}`;
  return content === null ? null : `text ${content}`;
}

function labelOf(trace: Trace, item: Item, quoted: Quoted | null, nested: Nested | null): string {
  if (quoted?.found.document) return quoted.found.document;
  if (nested) return nested.name;
  if (item.section) return item.section;
  if (item.source_kind === "template") {
    const names = [...new Set(item.reads.map((read) => trace.features[read]?.feature ?? ""))];
    return names.filter(Boolean).join(", ") || "template";
  }
  if (item.source_kind === "retrieval" || item.source_kind === "other") {
    if (typeof item.source_ref === "string") return item.source_ref;
    if (item.source_ref !== null) return JSON.stringify(item.source_ref);
  }
  return item.source_kind;
}

/** One line below the label: why the item stands where it stands. */
export function noteOf({ item, placed }: ItemView): string {
  if (item.decision === "dropped") {
    const how = placed !== null && placed.together.length > 0 ? "dropped together" : "dropped";
    return `${how}, +${count(item.short_by)}`;
  }
  if (item.decision === "truncated") return `shortened, +${count(item.short_by)}`;
  return item.required ? "required" : `priority ${count(item.priority)}`;
}

/** A value that the context read, with its place; inputs belong to the read they were used for. */
export type Place = { read: number; input: number | null };
export type PlacedValue = Place & { value: Value; isUsed: boolean };

export const placeKey = ({ read, input }: Place): string => `${read}/${input ?? ""}`;

/** The pointer of a value in the record. */
export const pointerOf = ({ read, input }: Place): string =>
  input === null ? `/features/${read}` : `/features/${read}/inputs/${input}`;

/** The values behind a read: itself, and each input once, however many ways lead to it. */
export function valuesOf(trace: Trace, read: number): PlacedValue[] {
  const lineage = trace.features[read];
  if (lineage === undefined) return [];
  const seen = new Set<string>();
  const inputs = lineage.inputs
    .map((value, input): PlacedValue => ({ read, input, value, isUsed: lineage.used }))
    .filter(({ value }) => {
      const key = JSON.stringify([value.feature, value.entity_id, value.as_of, value.value]);
      return !seen.has(key) && seen.add(key);
    });
  return [{ read, input: null, value: lineage, isUsed: lineage.used }, ...inputs];
}

/** The values by which a context is judged, each once: those that it read itself come first.
 * A value whose rule is its inputs is left out, because these stand for it. */
export function judgedValues(trace: Trace): PlacedValue[] {
  const seen = new Set<string>();
  return trace.features
    .flatMap((read, at) => {
      const values = valuesOf(trace, at);
      const judged = values.filter(({ value }) => value.rule !== "inputs");
      return read.rule === "inputs" && judged.length > 0 ? judged : values;
    })
    .sort((one, two) => Number(one.input !== null) - Number(two.input !== null))
    .filter(({ value, read }) => {
      const id = value.entity_id ?? `#${read}`;
      const key = JSON.stringify([value.feature, id, value.as_of, value.sla_ms]);
      return !seen.has(key) && seen.add(key);
    });
}

/** The entity that a context is about: the id among its arguments that it read a feature of. */
export function subjectOf(trace: Trace): string | null {
  const given = new Set(Object.values(trace.inputs).map(String));
  const read = trace.features.find(({ entity_id: id }) => id !== null && given.has(id));
  return read?.entity_id ?? null;
}

/** The values among an item's reads that were too old, missing or a default, without those that
 * are judged by their inputs. */
export function staleOf(trace: Trace, { item }: ItemView): number {
  const values = item.reads.flatMap((read) => valuesOf(trace, read));
  const stale = values.filter(({ value }) => !value.fresh && value.rule !== "inputs");
  return new Set(stale.map(({ value }) => value.feature)).size;
}

/** The item that is shown at first: one with an input that was not fresh, otherwise one that was read
 * from somewhere, because a fixed text has little to inspect. */
export function firstOf({ trace, items }: TraceView): number {
  const late = items.findIndex(
    (item) =>
      staleOf(trace, item) > 0 ||
      item.quoted?.search.fresh === false ||
      (item.nested !== null && item.nested.freshness_status !== "guaranteed"),
  );
  if (late >= 0) return late;
  return Math.max(
    0,
    items.findIndex(({ kind }) => kind !== "literal"),
  );
}

const WRITTEN: Readonly<Record<string, string>> = {
  set: "written through the API",
  computed: "run of the feature",
  served: "computed for a reader",
  refresh: "run on its schedule",
};

/** What wrote a value: an event, or one of the ways without one. */
export function causeWords({ cause, event }: Cause): { label: string; detail: string } {
  if (event) return { label: event.event_type, detail: shortened(event.event_id) };
  // A run on a schedule is named by its feature and time: `refresh:past_orders:2026-11-16T…`.
  const way = cause.split(":", 1)[0] ?? "";
  const detail = WRITTEN[way];
  return detail === undefined
    ? { label: "event", detail: `${shortened(cause)}, no longer in the log` }
    : { label: way, detail };
}
