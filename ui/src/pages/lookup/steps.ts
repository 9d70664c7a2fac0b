import type { Schema } from "~/api/client";
import { redriveOf } from "~/api/redrives";
import { inline } from "~/design/format";
import { drawn } from "~/windows";

/** The history of one value as a step function: pure, without a clock. */

export type Step = Schema<"HistoricalValue">;

/** A value and the time for which it counted. */
export type Segment = {
  from: number;
  to: number;
  step: Step;
  /** The change from the value before, where both are numbers. */
  change: number | null;
};

export type Range = "1h" | "24h" | "7d" | "30d" | "all";

export const RANGES: readonly (readonly [Range, string])[] = [
  ["1h", "1 h"],
  ["24h", "24 h"],
  ["7d", "7 d"],
  ["30d", "30 d"],
  ["all", "All"],
];

const HOUR = 3_600_000;
const SPANS: Readonly<Record<Range, number | null>> = {
  "1h": HOUR,
  "24h": 24 * HOUR,
  "7d": 7 * 24 * HOUR,
  "30d": 30 * 24 * HOUR,
  all: null,
};

export function rangeOf(text: string | null, otherwise: Range = "all"): Range {
  return RANGES.find(([range]) => range === text)?.[0] ?? otherwise;
}

/** Return the range that shows how a window of a span rises and falls: several times as long. */
export function rangeFor(spanMs: number): Range {
  return RANGES.find(([range]) => (SPANS[range] ?? Infinity) >= 3 * spanMs)?.[0] ?? "all";
}

/** Return the first moment of a range that ends now; null if it has none. */
export function startOf(range: Range, now: number): number | null {
  const span = SPANS[range];
  return span === null ? null : now - span;
}

export function stepKey({ as_of, written_at, cause }: Step): string {
  return `${as_of} ${written_at} ${cause}`;
}

/** Return the steps of several pages, newest first; pages may repeat those at their ends. */
export function merged(pages: readonly (readonly Step[])[]): Step[] {
  return [...new Map(pages.flat().map((step) => [stepKey(step), step])).values()];
}

/** Return the segments of steps that come newest first, the oldest segment first. */
export function segments(
  steps: readonly Step[],
  before: Step | null,
  start: number | null,
  end: number,
): Segment[] {
  const ordered = [...steps].reverse();
  if (before !== null) ordered.unshift(before);
  return ordered.map((step, index) => {
    const next = ordered[index + 1];
    const last = ordered[index - 1];
    const from = Date.parse(step.as_of);
    const to = next === undefined ? Math.max(end, from) : Date.parse(next.as_of);
    return {
      from: start === null ? from : Math.max(from, start),
      to,
      step,
      change: difference(last?.value, step.value),
    };
  });
}

/** Return segments with the numbers that a chart draws of a window; those of others as they are. */
export function drawnSegments(
  found: readonly Segment[],
  feature: Schema<"FeatureListing"> | undefined,
): readonly Segment[] {
  const window = feature?.window;
  if (!window) return found;
  const numbers = found.map(({ step }) => drawn(step.value, window.aggregate));
  if (numbers.every((number) => number === null)) return found;
  return found.map((each, at) => ({
    ...each,
    step: { ...each.step, value: numbers[at] ?? null },
  }));
}

function difference(before: unknown, after: unknown): number | null {
  if (typeof before !== "number" || typeof after !== "number") return null;
  // Differences of decimals show no noise of binary fractions.
  return Number((after - before).toPrecision(12));
}

/** Return whether a chart with an axis can show the values: numbers, some of them perhaps null. */
export function isNumeric(steps: readonly Step[]): boolean {
  const values = steps.map(({ value }) => value).filter((value) => value !== null);
  return values.length > 0 && values.every((value) => typeof value === "number");
}

/** Return the index of the segment that counts at a moment; -1 before the first. */
export function segmentAt(found: readonly Segment[], moment: number): number {
  return found.findLastIndex(({ from }) => from <= moment);
}

/** Return the moment in an address; null if there is none, or it is no time. */
export function momentOf(text: string | null): number | null {
  const moment = Date.parse(text ?? "");
  return Number.isNaN(moment) ? null : moment;
}

/** Return the newest of some steps that was known at a moment: late events change the past. */
export function knownAt(steps: readonly Step[], moment: number): Step | null {
  const isKnown = ({ as_of, written_at }: Step) =>
    Date.parse(as_of) <= moment && Date.parse(written_at) <= moment;
  return steps.find(isKnown) ?? null;
}

/** Return the cause of a step in words. */
export function causeWords({ cause, event }: Step): string {
  if (event !== null) return event.event_type;
  if (cause.startsWith("refresh:")) return "scheduled run";
  if (redriveOf(cause) !== null) return "redriven dead letter";
  if (/^import(?:$|[:#])/.test(cause)) return "imported";
  return CAUSES[cause] ?? "event";
}

const CAUSES: Readonly<Record<string, string>> = {
  set: "set by the application",
  computed: "computed when read",
  served: "computed when served",
  passed: "time passed",
};

/** Return the id of the event that caused a step, if an event did. */
export function eventId({ cause, event }: Step): string | null {
  if (event !== null) return event.event_id;
  const redrive = redriveOf(cause);
  if (redrive !== null) return redrive.event;
  return causeWords({ cause, event } as Step) === "event" ? cause : null;
}

/** Return a value on one line, at most so many characters long. */
export function brief(value: unknown, most = 120): string {
  const text = inline(value).replaceAll(/\s+/g, " ");
  return text.length > most ? `${text.slice(0, most)}…` : text;
}
