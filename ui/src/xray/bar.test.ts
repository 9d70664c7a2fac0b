import { describe, expect, it } from "vitest";

import { barOf, budgetOf, segmentAt } from "./bar";
import type { TraceView } from "./model";

function view(
  kept: number[],
  dropped: number[],
  maxTokens: number | null,
  envelope: number | null = 0,
): TraceView {
  return {
    trace: {
      max_tokens: maxTokens,
      margin_percent: 0,
      count: { envelope_tokens: envelope },
    },
    items: [...kept, ...dropped].map((tokens) => ({ tokens })),
    kept: kept.length,
  } as unknown as TraceView;
}

describe("barOf", () => {
  it("draws kept items to one scale and the budget behind them", () => {
    const { segments, budget, isFreeCut } = barOf(view([10, 30], [], 50));
    expect(segments.map(({ start, end }) => [start, end])).toEqual([
      [0, 0.2],
      [0.2, 0.8],
    ]);
    expect([budget, isFreeCut]).toEqual([1, false]);
  });

  it("draws what was counted around the items of messages behind them", () => {
    const { segments, envelope, budget } = barOf(view([10, 30], [], 50, 10));
    expect(segments[1]?.end).toBe(0.8);
    expect(envelope).toEqual({ start: 0.8, end: 1 });
    expect(budget).toBe(1);
    expect(barOf(view([10], [], 50, null)).envelope).toBeNull();
  });

  it("draws dropped items behind the budget, smaller where they would fill the bar", () => {
    const { segments, budget, isDroppedCut } = barOf(view([50], [10, 10_000], 60));
    const [kept, first, second] = segments;
    expect(isDroppedCut).toBe(true);
    expect(kept?.end).toBeGreaterThan(0.4);
    expect(first?.start).toBeGreaterThan(budget ?? 1);
    expect(second?.end).toBeCloseTo(1);
  });

  it("cuts a large free part", () => {
    const { segments, isFreeCut, budget } = barOf(view([10], [], 100_000));
    expect([isFreeCut, budget]).toEqual([true, 1]);
    expect(segments[0]?.end).toBeCloseTo(0.7);
  });

  it("shows the budget inside of items that exceed it, and no line without a budget", () => {
    expect(barOf(view([100], [], 25)).budget).toBe(0.25);
    expect(barOf(view([100], [], null)).budget).toBeNull();
    expect(barOf(view([], [], null)).segments).toEqual([]);
    expect(barOf(view([0, 0], [], null)).segments.every(({ end }) => end === 0)).toBe(true);
  });

  it("finds the segment at a place, also among a thousand", () => {
    const bar = barOf(view(Array<number>(1_000).fill(3), [], null));
    expect([0, 0.5, 0.9999].map((share) => segmentAt(bar, share))).toEqual([0, 500, 999]);
  });

  it("keeps the margin of an estimate free", () => {
    expect(budgetOf(130, 30)).toBe(100);
  });
});
