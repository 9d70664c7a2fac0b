/** The geometry of the token bar, in shares of its width. Pure. */
import type { TraceView } from "./model";

/** A part of the bar: an item, drawn from `start` to `end` (0 to 1). */
export type Segment = { index: number; start: number; end: number };

export type Bar = {
  segments: readonly Segment[];
  /** What was counted around the items of messages; it follows the kept ones. */
  envelope: { start: number; end: number } | null;
  /** Where the budget ends; null without a budget. */
  budget: number | null;
  /** The free part of the budget is drawn shorter than it is. */
  isFreeCut: boolean;
  /** Dropped items are drawn smaller than they are. */
  isDroppedCut: boolean;
};

const MOST_FREE = 0.3;
const MOST_DROPPED = 0.38;

/** Lay out the kept items, the budget, and behind it the dropped ones; the kept ones have one scale. */
export function barOf({ trace, items, kept }: TraceView): Bar {
  const widths = items.map(({ tokens }) => Math.max(0, tokens));
  const around = Math.max(0, trace.count.envelope_tokens ?? 0);
  const used = sum(widths.slice(0, kept)) + around;
  const dropped = sum(widths.slice(kept));
  const limit = trace.max_tokens === null ? null : budgetOf(trace.max_tokens, trace.margin_percent);
  const free = limit === null ? 0 : Math.max(0, limit - used);
  const gap = dropped > 0 ? Math.max(used + free, 1) * 0.004 : 0;
  // Tokens drawn for the free part and for the dropped items, so that the text stays readable.
  const freeDrawn = Math.min(free, cut(MOST_FREE, Math.max(used, 1)));
  const solid = Math.max(used + freeDrawn, 1);
  const droppedDrawn = Math.min(dropped, cut(MOST_DROPPED, solid));
  const total = solid + gap + droppedDrawn;
  const shrink = dropped > 0 ? droppedDrawn / dropped : 1;
  let at = 0;
  const segments = widths.map((width, index): Segment => {
    if (index === kept) at = solid + gap;
    const start = at;
    at += index < kept ? width : width * shrink;
    return { index, start: start / total, end: at / total };
  });
  const line = limit === null ? null : Math.min(limit, solid) / total;
  const start = (used - around) / total;
  return {
    segments,
    envelope: around > 0 ? { start, end: used / total } : null,
    budget: line,
    isFreeCut: freeDrawn < free,
    isDroppedCut: droppedDrawn < dropped,
  };
}

/** The tokens that a budget admits; an inexact tokenizer keeps a margin free. */
export function budgetOf(maxTokens: number, marginPercent: number): number {
  return Math.floor((maxTokens * 100) / (100 + marginPercent));
}

const sum = (values: readonly number[]): number => values.reduce((one, two) => one + two, 0);

/** The number that is this share of a whole together with the rest. */
const cut = (share: number, rest: number): number => (rest * share) / (1 - share);

/** The segment at a share of the width, or the nearest one. */
export function segmentAt({ segments }: Bar, share: number): number {
  let low = 0;
  let high = segments.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((segments[middle]?.end ?? 1) <= share) low = middle + 1;
    else high = middle;
  }
  return low;
}
