/** The numbers of the last hour as the tiles show them. Pure. */

export type Numbers = readonly (number | null)[];

/** Return the last known number; null if nothing is known. */
export function latest(values: Numbers): number | null {
  return values.findLast((value) => value !== null) ?? null;
}

/** Return the highest known number; null if nothing is known. */
export function highest(values: Numbers): number | null {
  const known = values.filter((value) => value !== null);
  return known.length === 0 ? null : Math.max(...known);
}

/** Return how much a number has grown since its first known value. */
export function growth(values: Numbers): number {
  const first = values.find((value) => value !== null) ?? 0;
  return (latest(values) ?? 0) - first;
}

/** Return the bounds of an axis: from zero, or for shares from a round number below the lowest. */
export function bounds(values: Numbers, top?: number): readonly [low: number, high: number] {
  const known = values.filter((value) => value !== null);
  if (top === undefined) return [0, Math.max(...known, 0) || 1];
  const lowest = Math.min(...known, top);
  return [Math.max(0, Math.min(top * 0.9, Math.floor(lowest / 10) * 10)), top];
}

/** Return the known points of a line, split at the gaps; all are shares of 1. */
export function lines(
  values: Numbers,
  [low, high]: readonly [number, number],
): [number, number][][] {
  const found: [number, number][][] = [];
  let open: [number, number][] | null = null;
  values.forEach((value, index) => {
    if (value === null) {
      open = null;
      return;
    }
    const share = (value - low) / (high - low);
    const point: [number, number] = [index / Math.max(values.length - 1, 1), share];
    if (open === null) found.push((open = [point]));
    else open.push(point);
  });
  return found;
}

/** Return the time of a point, in milliseconds. */
export function timeOf(end: string, stepSeconds: number, length: number, index: number): number {
  return Date.parse(end) - (length - 1 - index) * stepSeconds * 1_000;
}
