import { describe, expect, it } from "vitest";

import { neighbour, placed } from "./layout";
import {
  folded,
  itemsOf,
  matches,
  NO_OWNER,
  ownersAndTags,
  relatedTo,
  rowsOf,
  touchedBy,
  withNeighbours,
  type Edge,
  type Filter,
} from "./model";

const edge = (source: string, target: string): Edge => ({
  source,
  target,
  found_in: "declaration",
});

const feature = (name: string, entity: string) => ({
  name,
  entity,
  type: "float",
  mode: "triggered" as const,
  description: `The ${name}.`,
  triggers: [],
  needs: [],
  refresh: null,
  schedule: null,
  next_runs: [],
  ttl_ms: null,
  materialize: false,
  freshness: "age",
  freshness_sla_ms: null,
  log: false,
  derived: false,
  sql: null,
  template: null,
  default: null,
  windows: null,
  window: null,
  belongs_to: null,
  owner: name === "spend" ? "risk" : "",
  tags: name === "spend" ? ["money"] : [],
  unit: name === "spend" ? "EUR" : "",
});

const node = <Kind extends string>(
  kind: Kind,
  id: string,
  entity: string | null = null,
  owner = "",
  tags: string[] = [],
  unit = "",
) => ({
  id,
  name: id.slice(id.indexOf(":") + 1),
  kind,
  entity,
  description: "",
  owner,
  tags,
  unit,
});

const listing = {
  entities: [
    { name: "User", id_field: "user_id", id_type: "str", belongs_to: {}, description: "" },
  ],
  features: [feature("spend", "User"), feature("stock", "Product")],
  events: [],
  indexes: [],
  retrievers: [],
  contexts: [],
  graph: {
    nodes: [
      node("event", "event:purchase"),
      node("triggered", "feature:spend", "User", "risk", ["money"], "EUR"),
      node("triggered", "feature:stock", "Product"),
      node("context", "context:support"),
    ],
    edges: [edge("event:purchase", "feature:spend"), edge("feature:spend", "context:support")],
  },
};

describe("items", () => {
  it("are entities, features and the rest, with their dependencies counted", () => {
    const items = itemsOf(listing);
    expect(items.map(({ id }) => id)).toEqual([
      "entity:User",
      "feature:spend",
      "feature:stock",
      "context:support",
      "event:purchase",
    ]);
    expect(items[1]).toMatchObject({ mode: "triggered", type: "float", needs: 1, neededBy: 1 });
    expect(items[0]).toMatchObject({ neededBy: 1, entity: "User" });
  });

  it("match by kind, by words, and by the entity that they touch", () => {
    const items = itemsOf(listing);
    const found = (filter: Partial<Filter>) => {
      const whole = { kind: "", entity: "", owner: "", tag: "", text: "", ...filter };
      const touched = touchedBy(items, listing.graph, whole.entity);
      return items.filter((item) => matches(item, whole, touched)).map(({ name }) => name);
    };
    expect(found({ kind: "feature" })).toEqual(["spend", "stock"]);
    expect(found({ text: "SPE trigg" })).toEqual(["spend"]);
    expect(found({ entity: "User" })).toEqual(["User", "spend", "support", "purchase"]);
    expect(found({ entity: "Product" })).toEqual(["stock"]);
    expect(found({ owner: "risk" })).toEqual(["spend"]);
    expect(found({ owner: NO_OWNER })).toEqual(["stock"]);
    expect(found({ tag: "money" })).toEqual(["spend"]);
    expect(found({ text: "risk eur money" })).toEqual(["spend"]);
    expect(ownersAndTags(items)).toEqual({ owners: ["risk"], tags: ["money"], someUnowned: true });
  });
});

describe("families", () => {
  const windows = ["spend_sum_1h", "spend_sum_7d"];
  const withWindows = {
    ...listing,
    features: [...listing.features, ...windows.map((name) => feature(name, "User"))],
    graph: {
      nodes: [
        ...listing.graph.nodes,
        ...windows.map((name) => node("window", `feature:${name}`, "User")),
      ],
      edges: [
        edge("event:purchase", "feature:spend"),
        ...windows.map((name) => edge("feature:spend", `feature:${name}`)),
        { ...edge("feature:spend_sum_1h", "context:support"), found_in: "code" as const },
        edge("feature:spend_sum_7d", "context:support"),
      ],
    },
  };

  it("count their windows, and what needs one of these", () => {
    const items = itemsOf(withWindows);
    const found = (name: string) => items.find((item) => item.name === name);
    expect(found("spend")).toMatchObject({ members: 2, neededBy: 1, family: null });
    expect(found("spend_sum_7d")).toMatchObject({ members: 0, family: "feature:spend" });
    expect(found("User")).toMatchObject({ neededBy: 2 });
  });

  it("are one node of the picture, whatever its windows are needed by", () => {
    const { nodes, edges } = folded(withWindows.graph);
    expect(nodes).toEqual(listing.graph.nodes);
    expect(edges).toEqual([
      edge("event:purchase", "feature:spend"),
      edge("feature:spend", "context:support"),
    ]);
    expect(folded(listing.graph)).toBe(listing.graph);
  });

  it("are one row of the list until they are opened", () => {
    const items = itemsOf(withWindows).filter(({ kind }) => kind === "feature");
    const names = (opened: readonly string[], found = items) =>
      rowsOf(found, new Set(opened)).map(({ name }) => name);
    expect(names([])).toEqual(["spend", "stock"]);
    expect(names(["feature:spend"])).toEqual(["spend", ...windows, "stock"]);
    expect(names([], items.slice(2))).toEqual(windows);
  });
});

describe("relations", () => {
  it("go along the edges in both directions, but not back", () => {
    const graph = { nodes: [], edges: [edge("a", "b"), edge("b", "c"), edge("x", "c")] };
    expect([...relatedTo(graph, "b")].sort()).toEqual(["a", "b", "c"]);
    expect([...withNeighbours(new Set(["a"]), graph)].sort()).toEqual(["a", "b"]);
  });

  it("end in a circle", () => {
    const graph = { nodes: [], edges: [edge("a", "b"), edge("b", "a")] };
    expect([...relatedTo(graph, "a")].sort()).toEqual(["a", "b"]);
  });
});

describe("layout", () => {
  const edges = [edge("a", "b"), edge("b", "c"), edge("a", "d")];

  it("runs from left to right, and puts the unconnected below", () => {
    const places = placed(["a", "b", "c", "d", "lonely"], edges);
    const at = (id: string) => places.get(id) ?? { x: NaN, y: NaN };
    expect(at("a").x).toBeLessThan(at("b").x);
    expect(at("b").x).toBeLessThan(at("c").x);
    expect(at("lonely").y).toBeGreaterThan(Math.max(at("a").y, at("c").y, at("d").y));
    expect(placed([], edges).size).toBe(0);
  });

  it("is walked by arrow keys", () => {
    const places = placed(["a", "b", "c", "d"], edges);
    expect(neighbour(places, edges, "b", "ArrowRight")).toBe("c");
    expect(neighbour(places, edges, "c", "ArrowLeft")).toBe("b");
    expect(neighbour(places, edges, "c", "ArrowRight")).toBeNull();
    expect(neighbour(places, edges, "missing", "ArrowUp")).toBeNull();
    const [upper, lower] = ["b", "d"].sort(
      (one, two) => (places.get(one)?.y ?? 0) - (places.get(two)?.y ?? 0),
    ) as [string, string];
    expect(neighbour(places, edges, upper, "ArrowDown")).toBe(lower);
    expect(neighbour(places, edges, lower, "ArrowUp")).toBe(upper);
  });

  it("gives hundreds of nodes places of their own", () => {
    const ids = Array.from({ length: 320 }, (_, number) => `n${number}`);
    const many = ids
      .slice(20)
      .flatMap((id, number) => [
        edge(`n${number % 20}`, id),
        edge(`n${Math.floor(number / 2)}`, id),
      ]);
    const places = placed(ids, many);
    expect(places.size).toBe(320);
    expect(new Set([...places.values()].map(({ x, y }) => `${x} ${y}`)).size).toBe(320);
  });
});
