import { kindOf, type Edge } from "./model";

export const NODE = { width: 200, height: 44 } as const;
const GAP = { x: 56, y: 12, column: 16 } as const;
const STEP = NODE.height + GAP.y;
const SWEEPS = 6;
const LEAST_ROWS = 12;

export type Place = { x: number; y: number };

/**
 * Return the place of each node: in columns from left to right along the edges, contexts last. The
 * time grows with the number of edges, so that hundreds of declarations are drawn at once. Nodes
 * without an edge stand in a grid below the others.
 */
export function placed(ids: readonly string[], edges: readonly Edge[]): Map<string, Place> {
  const shown = new Set(ids);
  const drawn = edges.filter(({ source, target }) => shown.has(source) && shown.has(target));
  const joined = new Set(drawn.flatMap(({ source, target }) => [source, target]));
  const links = linksOf(drawn);
  const ranks = ranksOf(
    ids.filter((id) => joined.has(id)),
    links,
  );
  const places = new Map<string, Place>();
  const rows = Math.max(LEAST_ROWS, Math.ceil(1.3 * Math.sqrt(joined.size)));
  let x = 0;
  for (const column of ordered(columnsOf(ranks), links)) {
    const width = Math.ceil(column.length / rows);
    column.forEach((id, index) => {
      const y = Math.floor(index / width) * STEP;
      places.set(id, { x: x + (index % width) * (NODE.width + GAP.column), y });
    });
    x += width * (NODE.width + GAP.column) - GAP.column + GAP.x;
  }
  relax(places, links);
  const bottom = Math.max(0, ...[...places.values()].map(({ y }) => y + STEP + 2 * GAP.y));
  const alone = ids.filter((id) => !joined.has(id));
  const columns = Math.max(3, Math.ceil(Math.sqrt(alone.length / 3)));
  alone.forEach((id, index) => {
    places.set(id, {
      x: (index % columns) * (NODE.width + GAP.column),
      y: bottom + Math.floor(index / columns) * STEP,
    });
  });
  return places;
}

type Links = { before: Map<string, string[]>; after: Map<string, string[]> };

function linksOf(edges: readonly Edge[]): Links {
  const links: Links = { before: new Map(), after: new Map() };
  for (const { source, target } of edges) {
    links.before.set(target, [...(links.before.get(target) ?? []), source]);
    links.after.set(source, [...(links.after.get(source) ?? []), target]);
  }
  return links;
}

/** Return the column of each node: after everything that it needs, contexts after all others. */
function ranksOf(ids: readonly string[], { before, after }: Links): Map<string, number> {
  const ranks = new Map<string, number>();
  const open = new Set<string>();
  const rank = (id: string): number => {
    const known = ranks.get(id);
    if (known !== undefined) return known;
    // Functions may read what they write: the last step of such a circle is left out.
    if (open.has(id)) return -1;
    open.add(id);
    const found = 1 + Math.max(-1, ...(before.get(id) ?? []).map(rank));
    open.delete(id);
    ranks.set(id, found);
    return found;
  };
  for (const id of ids) rank(id);
  const others = ids.filter((id) => kindOf(id) !== "context");
  const last = Math.max(-1, ...others.map((id) => ranks.get(id) ?? 0));
  for (const id of ids) {
    if (kindOf(id) === "context") {
      const inner = (before.get(id) ?? []).filter((each) => kindOf(each) === "context");
      ranks.set(id, last + (inner.length > 0 ? 2 : 1));
    } else if (!before.has(id) && kindOf(id) !== "event" && kindOf(id) !== "source") {
      // An index stands next to its first retriever, and not among the event types.
      const next = Math.min(...(after.get(id) ?? []).map((each) => ranks.get(each) ?? 1));
      ranks.set(id, Math.max(0, Math.min(next, last + 1) - 1));
    }
  }
  return ranks;
}

function columnsOf(ranks: ReadonlyMap<string, number>): string[][] {
  const last = Math.max(-1, ...ranks.values());
  const columns = Array.from({ length: last + 1 }, (): string[] => []);
  for (const [id, rank] of ranks) columns[rank]?.push(id);
  return columns.filter((column) => column.length > 0);
}

/** Sort each column by the mean position of what its nodes are linked to, to cross few edges. */
function ordered(columns: readonly string[][], { before, after }: Links): string[][] {
  const position = new Map<string, number>();
  const settle = (column: readonly string[]) =>
    column.forEach((id, index) => position.set(id, (index + 0.5) / column.length));
  let current = columns.map((column) => [...column]);
  current.forEach(settle);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const isForward = sweep % 2 === 0;
    const links = isForward ? before : after;
    const next = isForward ? current : current.toReversed();
    for (const column of next) {
      const wanted = new Map(
        column.map((id) => [id, mean(links.get(id), position) ?? position.get(id) ?? 0]),
      );
      column.sort((one, two) => (wanted.get(one) ?? 0) - (wanted.get(two) ?? 0));
      settle(column);
    }
    current = isForward ? next : next.toReversed();
  }
  return current;
}

function mean(ids: readonly string[] | undefined, of: ReadonlyMap<string, number>): number | null {
  const found = (ids ?? []).flatMap((id) => of.get(id) ?? []);
  return found.length === 0 ? null : found.reduce((sum, each) => sum + each, 0) / found.length;
}

/** Move the nodes of each column, in their order, towards the height of what they are linked to. */
function relax(places: Map<string, Place>, { before, after }: Links): void {
  const columns = new Map<number, string[]>();
  for (const [id, { x }] of places) columns.set(x, [...(columns.get(x) ?? []), id]);
  const heights = new Map([...places].map(([id, { y }]) => [id, y]));
  const inOrder = [...columns].sort(([one], [two]) => one - two).map(([, column]) => column);
  for (const column of [...inOrder, ...inOrder.toReversed(), ...inOrder]) {
    const wanted = column.map(
      (id) => mean([...(before.get(id) ?? []), ...(after.get(id) ?? [])], heights) ?? 0,
    );
    let floor = -Infinity;
    const pushed = wanted.map((y) => (floor = Math.max(y, floor + STEP)));
    const shift =
      pushed.reduce((sum, y, index) => sum + (wanted[index] ?? y) - y, 0) / (pushed.length || 1);
    column.forEach((id, index) => heights.set(id, (pushed[index] ?? 0) + shift));
  }
  const top = Math.min(0, ...heights.values());
  for (const [id, place] of places) place.y = Math.round((heights.get(id) ?? 0) - top);
}

export type Arrow = "ArrowUp" | "ArrowDown" | "ArrowLeft" | "ArrowRight";

/**
 * Return the node that an arrow key leads to: along an edge if there is one in this direction, else
 * the nearest node.
 */
export function neighbour(
  places: ReadonlyMap<string, Place>,
  edges: readonly Edge[],
  from: string,
  arrow: Arrow,
): string | null {
  const start = places.get(from);
  if (start === undefined) return null;
  const isSideways = arrow === "ArrowLeft" || arrow === "ArrowRight";
  const linked = isSideways
    ? edges.flatMap(({ source, target }) => {
        if (arrow === "ArrowRight") return source === from ? [target] : [];
        return target === from ? [source] : [];
      })
    : [];
  const candidates = linked.some((id) => places.has(id)) ? linked : [...places.keys()];
  let best: string | null = null;
  let least = Infinity;
  for (const id of candidates) {
    const place = places.get(id);
    if (place === undefined || id === from) continue;
    const [ahead, aside] = distances(start, place, arrow);
    if (ahead <= 0 && !linked.includes(id)) continue;
    const distance = ahead + 3 * aside;
    if (distance < least) [best, least] = [id, distance];
  }
  return best;
}

/** Return how far a place lies in the direction of an arrow, and how far beside it. */
function distances(from: Place, to: Place, arrow: Arrow): [ahead: number, aside: number] {
  const [x, y] = [to.x - from.x, to.y - from.y];
  switch (arrow) {
    case "ArrowRight":
      return [x, Math.abs(y)];
    case "ArrowLeft":
      return [-x, Math.abs(y)];
    case "ArrowDown":
      return [y, Math.abs(x)];
    case "ArrowUp":
      return [-y, Math.abs(x)];
  }
}
