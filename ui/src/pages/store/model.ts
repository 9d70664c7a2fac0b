import type { Schema } from "~/api/client";
import { windowWords } from "~/windows";

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
  /** Only features have an owner, tags and a unit. */
  owner: string;
  tags: readonly string[];
  unit: string;
  needs: number;
  neededBy: number;
  /** The id of the family that a window is a member of. */
  family: string | null;
  /** How many windows a family has. */
  members: number;
};

export type Filter = { kind: string; entity: string; owner: string; tag: string; text: string };

/** The owner in a filter that stands for features without one. */
export const NO_OWNER = "-";

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
    ...listing.features.map((each) => [`feature:${each.name}`, descriptionOf(each)] as const),
    ...listing.events.map((each) => [`event:${each.name}`, each.description] as const),
    ...listing.retrievers.map((each) => [`retriever:${each.name}`, each.description] as const),
    ...listing.contexts.map((each) => [`context:${each.name}`, each.description] as const),
  ]);
  const families = familiesOf(listing.graph);
  const members = countOf([...families.values()]);
  const needs = countOf(listing.graph.edges.map(({ target }) => target));
  const neededBy = countOf([
    ...listing.graph.edges.map(({ source }) => source).filter((source) => !members.has(source)),
    // A family is needed by what needs one of its windows.
    ...folded(listing.graph)
      .edges.map(({ source }) => source)
      .filter((source) => members.has(source)),
  ]);
  const declared = listing.graph.nodes.filter(({ kind }) => kind !== "entity");
  const nodes = declared.map(({ id, name, kind, entity, owner, tags, unit }): Item => {
    const own = kindOf(id);
    return {
      id,
      kind: own,
      name,
      mode: own === "feature" ? kind : null,
      entity: entity ?? null,
      type: own === "feature" ? (features.get(name)?.type ?? null) : null,
      description: described.get(id) ?? "",
      owner,
      tags,
      unit,
      needs: needs.get(id) ?? 0,
      neededBy: neededBy.get(id) ?? 0,
      family: families.get(id) ?? null,
      members: members.get(id) ?? 0,
    };
  });
  const entities = listing.entities.map((each): Item => {
    const { name, id_field, id_type, belongs_to, description } = each;
    const owners = Object.values(belongs_to).join(" and ");
    const own = nodes.filter((node) => node.entity === name && node.members === 0).length;
    return {
      id: `entity:${name}`,
      kind: "entity",
      name,
      mode: null,
      entity: name,
      type: id_type,
      description: description || `Identified by ${id_field}${owners && `, belongs to ${owners}`}`,
      owner: "",
      tags: [],
      unit: "",
      needs: 0,
      neededBy: own,
      family: null,
      members: 0,
    };
  });
  return [...entities, ...nodes].sort((a, b) => ORDER.indexOf(a.kind) - ORDER.indexOf(b.kind));
}

/** Return what a feature is for; windows have the words of their family, so what tells them apart. */
function descriptionOf({ description, window }: Listing["features"][number]): string {
  return window === null ? description : `${window.aggregate} over ${windowWords(window)}`;
}

function countOf(ids: readonly string[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const id of ids) counts.set(id, (counts.get(id) ?? 0) + 1);
  return counts;
}

/** Return the family of each window, both by id. */
export function familiesOf({ nodes, edges }: Graph): Map<string, string> {
  const windows = new Set(nodes.filter(({ kind }) => kind === "window").map(({ id }) => id));
  const declared = edges.filter(
    ({ target, found_in }) => windows.has(target) && found_in === "declaration",
  );
  return new Map(declared.map(({ source, target }) => [target, source]));
}

/** Return the graph with one node for each family: what needs a window needs its family there. */
export function folded(graph: Graph): Graph {
  const families = familiesOf(graph);
  if (families.size === 0) return graph;
  const edges = new Map<string, Edge>();
  for (const edge of graph.edges) {
    const source = families.get(edge.source) ?? edge.source;
    const target = families.get(edge.target) ?? edge.target;
    const key = `${source}>${target}`;
    // An edge that is declared stands for those that were found in code.
    if (source !== target && edges.get(key)?.found_in !== "declaration") {
      edges.set(key, { ...edge, source, target });
    }
  }
  return { nodes: graph.nodes.filter(({ id }) => !families.has(id)), edges: [...edges.values()] };
}

/**
 * Return the rows of a list: the windows of a family follow it if it is opened. Those that were
 * found without their family stand alone.
 */
export function rowsOf(found: readonly Item[], opened: ReadonlySet<string>): Item[] {
  const shown = new Set(found.map(({ id }) => id));
  const own = new Map<string, Item[]>();
  for (const item of found) {
    if (item.family !== null) own.set(item.family, [...(own.get(item.family) ?? []), item]);
  }
  return found.flatMap((item) => {
    if (item.family !== null) return shown.has(item.family) ? [] : [item];
    return opened.has(item.id) ? [item, ...(own.get(item.id) ?? [])] : [item];
  });
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
  if (filter.owner !== "" && !isOwned(item, filter.owner)) return false;
  if (filter.tag !== "" && !item.tags.includes(filter.tag)) return false;
  const words = filter.text.toLowerCase().split(/\s+/);
  const { name, mode, kind, owner, tags, unit, description } = item;
  const text = [name, mode, kind, owner, ...tags, unit, description].join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
}

function isOwned({ kind, owner }: Item, by: string): boolean {
  return by === NO_OWNER ? kind === "feature" && owner === "" : owner === by;
}

/** Return the owners and the tags of all features, in their order, and whether some have no owner. */
export function ownersAndTags(items: readonly Item[]) {
  const features = items.filter(({ kind }) => kind === "feature");
  const sorted = (texts: readonly string[]) =>
    [...new Set(texts)].filter(Boolean).sort((one, two) => one.localeCompare(two));
  return {
    owners: sorted(features.map(({ owner }) => owner)),
    tags: sorted(features.flatMap(({ tags }) => tags)),
    someUnowned: features.some(({ owner }) => owner === ""),
  };
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
