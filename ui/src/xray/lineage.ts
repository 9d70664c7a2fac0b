/** The lineage of a context as columns: events, features, templates and searches, items, text. Pure. */
import { plural } from "~/design/format";

import { eventOf, historyOf } from "./links";
import {
  causeWords,
  placeKey,
  type Cause,
  type ItemView,
  type Read,
  type TraceView,
  type Value,
} from "./model";

export type Column = 0 | 1 | 2 | 3 | 4;

export type LineageNode = {
  id: string;
  column: Column;
  label: string;
  detail: string;
  color?: string;
  isStale?: boolean;
  isDropped?: boolean;
  /** The address of the page about it. */
  href?: string | null;
  /** The item that a click selects. */
  index?: number;
};

type LineageEdge = {
  from: string;
  to: string;
  /** The function read it, and the record does not say for which item. */
  isLoose?: boolean;
};

export type Lineage = { nodes: readonly LineageNode[]; edges: readonly LineageEdge[] };

export const COLUMNS = ["Events", "Features", "Templates and searches", "Items", "Text"] as const;

/** Return the lineage of some items: all that they were made of, and the text. */
export function lineageOf(
  view: TraceView,
  indexes: readonly number[],
  causes: ReadonlyMap<string, Cause>,
): Lineage {
  const graph = new Graph();
  const { trace, items } = view;
  for (const index of indexes) {
    const item = items[index];
    if (item === undefined) continue;
    graph.add({
      id: `item ${index}`,
      column: 3,
      label: item.label,
      detail: item.isDropped ? "dropped" : plural(item.tokens, "token"),
      color: item.color,
      isDropped: item.isDropped,
      index,
    });
    if (!item.isDropped) graph.link(`item ${index}`, "text");
    addSource(graph, view, item, index, causes);
  }
  addLooseReads(graph, view, indexes, causes);
  graph.add({ id: "text", column: 4, label: trace.name, detail: plural(trace.tokens, "token") });
  return graph;
}

function addSource(
  graph: Graph,
  view: TraceView,
  item: ItemView,
  index: number,
  causes: ReadonlyMap<string, Cause>,
): void {
  if (item.quoted) {
    const { search, at } = item.quoted;
    graph.add({
      id: `search ${at}`,
      column: 2,
      label: search.retriever,
      detail: search.index === null ? "retriever" : `index ${search.index}`,
      isStale: !search.fresh,
      href: null,
    });
    graph.link(`search ${at}`, `item ${index}`);
  } else if (item.nested) {
    graph.add({
      id: `context ${item.nested.context_id}`,
      column: 2,
      label: item.nested.name,
      detail: `context, ${item.nested.freshness_status}`,
      href: `/records/${item.nested.context_id}`,
    });
    graph.link(`context ${item.nested.context_id}`, `item ${index}`);
  } else if (item.kind === "template") {
    const text = item.item.source_ref;
    const id = `template ${typeof text === "string" ? text : index}`;
    graph.add({ id, column: 2, label: item.label, detail: "template", index });
    graph.link(id, `item ${index}`);
    for (const read of item.item.reads) addRead(graph, view, read, id, false, causes);
  }
}

/** Add a feature that was read, with its inputs and the events behind them. */
function addRead(
  graph: Graph,
  view: TraceView,
  read: number,
  to: string,
  isLoose: boolean,
  causes: ReadonlyMap<string, Cause>,
): void {
  const lineage = view.trace.features[read];
  if (lineage === undefined) return;
  for (const { input, value } of storedOf(lineage)) {
    const id = `feature ${value.feature} ${value.entity_id ?? read}`;
    graph.add({
      id,
      column: 1,
      label: value.feature,
      detail: input === null ? value.source : `for ${lineage.feature}`,
      isStale: !value.fresh,
      href: historyOf(value, view.trace.created_at),
    });
    graph.link(id, to, isLoose);
    addCause(graph, id, causes.get(placeKey({ read, input })));
  }
}

function addCause(graph: Graph, feature: string, cause: Cause | undefined): void {
  if (cause === undefined) return;
  const { event } = cause;
  const { label, detail } = causeWords(cause);
  const id = `event ${event === null ? feature : event.event_id}`;
  const href = event && eventOf(event.event_id);
  graph.add({ id, column: 0, label, detail, href });
  graph.link(id, feature);
}

/** The stored values behind a read: its stored inputs, or itself if it has none. */
function storedOf(lineage: Read): { input: number | null; value: Value }[] {
  const inputs = lineage.inputs
    .map((value, input) => ({ input, value }))
    .filter(({ value }) => value.written_at !== null);
  return inputs.length > 0 ? inputs : [{ input: null, value: lineage }];
}

/** Features that the function itself read: the record does not say which items they became. */
function addLooseReads(
  graph: Graph,
  view: TraceView,
  indexes: readonly number[],
  causes: ReadonlyMap<string, Cause>,
): void {
  const ofTemplates = new Set(view.trace.items.flatMap(({ reads }) => reads));
  const loose = [...view.trace.features.keys()].filter((read) => !ofTemplates.has(read));
  const literal = indexes.filter((index) => {
    const item = view.items[index];
    return item && ["literal", "other"].includes(item.kind);
  });
  if (loose.length === 0 || literal.length === 0) return;
  const id = "function";
  graph.add({ id, column: 2, label: `${view.trace.name}()`, detail: "function" });
  for (const read of loose) addRead(graph, view, read, id, true, causes);
  for (const index of literal) graph.link(id, `item ${index}`, true);
}

class Graph implements Lineage {
  #nodes = new Map<string, LineageNode>();
  #edges = new Map<string, LineageEdge>();

  add(node: LineageNode): void {
    if (!this.#nodes.has(node.id)) this.#nodes.set(node.id, node);
  }

  link(from: string, to: string, isLoose = false): void {
    this.#edges.set(`${from}\n${to}`, { from, to, isLoose });
  }

  get nodes(): LineageNode[] {
    return [...this.#nodes.values()];
  }

  get edges(): LineageEdge[] {
    return [...this.#edges.values()];
  }
}
