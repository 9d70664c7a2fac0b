import type { Schema } from "~/api/client";

type Listing = Schema<"StoreListing">;
export type Kind = Schema<"DeclarationCard">["kind"];
export type Graph = Listing["graph"];
export type Edge = Graph["edges"][number];

/** A declaration, an event type or a source, as the graph and the list show it. */
export type Item = {
  /** The kind and the name, which is also the id of its node: `feature:total_spend`. */
  id: string;
  kind: Kind;
  name: string;
  /** How a feature is computed. */
  mode: string | null;
  entity: string | null;
  type: string | null;
  description: string;
  needs: number;
  neededBy: number;
};

export type Filter = { kind: string; entity: string; text: string };

const ORDER: readonly Kind[] = [
  "entity",
  "feature",
  "retriever",
  "index",
  "context",
  "event",
  "source",
];

/** Return everything that is declared: entities first, then by kind, in the order of the file. */
export function itemsOf(listing: Listing): Item[] {
  const features = new Map(listing.features.map((each) => [each.name, each]));
  const described = new Map<string, string>([
    ...listing.features.map((each) => [`feature:${each.name}`, each.description] as const),
    ...listing.retrievers.map((each) => [`retriever:${each.name}`, each.description] as const),
    ...listing.contexts.map((each) => [`context:${each.name}`, each.description] as const),
  ]);
  const needs = new Map<string, number>();
  const neededBy = new Map<string, number>();
  for (const { source, target } of listing.graph.edges) {
    needs.set(target, (needs.get(target) ?? 0) + 1);
    neededBy.set(source, (neededBy.get(source) ?? 0) + 1);
  }
  const nodes = listing.graph.nodes.map(({ id, name, kind, entity }): Item => {
    const own = kindOf(id);
    return {
      id,
      kind: own,
      name,
      mode: own === "feature" ? kind : null,
      entity: entity ?? null,
      type: own === "feature" ? (features.get(name)?.type ?? null) : null,
      description: described.get(id) ?? "",
      needs: needs.get(id) ?? 0,
      neededBy: neededBy.get(id) ?? 0,
    };
  });
  const entities = listing.entities.map(({ name, id_field, id_type }): Item => {
    const own = listing.features.filter(({ entity }) => entity === name).length;
    return {
      id: `entity:${name}`,
      kind: "entity",
      name,
      mode: null,
      entity: name,
      type: id_type,
      description: `Identified by ${id_field}`,
      needs: 0,
      neededBy: own,
    };
  });
  return [...entities, ...nodes].sort((a, b) => ORDER.indexOf(a.kind) - ORDER.indexOf(b.kind));
}

/** Return the kind in an id: `feature` of `feature:total_spend`. */
export function kindOf(id: string): Kind {
  return id.slice(0, id.indexOf(":")) as Kind;
}

/** Return the name in an id. */
export function nameOf(id: string): string {
  return id.slice(id.indexOf(":") + 1);
}

/** Return whether an item matches a filter; things without an entity match those they touch. */
export function matches(item: Item, filter: Filter, touched: ReadonlySet<string>): boolean {
  if (filter.kind !== "" && item.kind !== filter.kind) return false;
  if (filter.entity !== "" && item.entity !== filter.entity && !touched.has(item.id)) return false;
  const words = filter.text.toLowerCase().split(/\s+/);
  const text = `${item.name} ${item.mode ?? ""} ${item.kind} ${item.description}`.toLowerCase();
  return words.every((word) => text.includes(word));
}

/** Return the ids of what features of an entity need or are needed by, also through others. */
export function touchedBy(items: readonly Item[], graph: Graph, entity: string): Set<string> {
  const own = items.filter((item) => item.kind === "feature" && item.entity === entity);
  const seen = new Set(own.map(({ id }) => id));
  for (const { id } of own) {
    for (const each of relatedTo(graph, id)) {
      if (kindOf(each) !== "feature") seen.add(each);
    }
  }
  return seen;
}

/** Return the ids of everything that something needs or that needs it, with its own. */
export function relatedTo(graph: Graph, id: string): Set<string> {
  const following = new Map<string, string[]>();
  const leading = new Map<string, string[]>();
  for (const { source, target } of graph.edges) {
    add(following, source, target);
    add(leading, target, source);
  }
  return new Set([...reach(following, id), ...reach(leading, id)]);
}

function add(steps: Map<string, string[]>, from: string, to: string) {
  const known = steps.get(from);
  if (known) known.push(to);
  else steps.set(from, [to]);
}

function reach(steps: ReadonlyMap<string, readonly string[]>, start: string): Set<string> {
  const seen = new Set([start]);
  const waiting = [start];
  for (let id = waiting.pop(); id !== undefined; id = waiting.pop()) {
    for (const next of steps.get(id) ?? []) {
      if (!seen.has(next)) {
        seen.add(next);
        waiting.push(next);
      }
    }
  }
  return seen;
}

/** Return the ids to draw: what matches, and what is directly next to it. */
export function withNeighbours(matching: ReadonlySet<string>, graph: Graph): Set<string> {
  const shown = new Set(matching);
  for (const { source, target } of graph.edges) {
    if (matching.has(source)) shown.add(target);
    if (matching.has(target)) shown.add(source);
  }
  return shown;
}
