import { describe, expect, it } from "vitest";

import { linear, numberTicks, tickText, timeTicks } from "./scales";

describe("numberTicks", () => {
  it.each([
    [0, 50, [0, 20, 40, 60]],
    [3, 3, [1, 2, 3, 4, 5]],
    [0, 0, [-1, -0.5, 0, 0.5, 1]],
    [-0.2, 0.3, [-0.2, 0, 0.2, 0.4]],
  ])("covers %f to %f", (low, high, ticks) => {
    expect(numberTicks(low, high)).toEqual(ticks);
  });

  it("covers every span with few ticks", () => {
    for (const high of [1e-9, 0.7, 12, 999, 1e6, 1e15]) {
      const ticks = numberTicks(0, high);
      expect(ticks.length).toBeLessThanOrEqual(7);
      expect(ticks.at(-1)).toBeGreaterThanOrEqual(high);
    }
  });
});

describe("timeTicks", () => {
  const day = Date.UTC(2026, 10, 14);

  it("labels hours, and midnight by its day", () => {
    const labels = timeTicks(day - 3 * 3_600_000, day + 3 * 3_600_000, 6).map(({ label }) => label);
    expect(labels).toContain("14 Nov");
    expect(labels).toContain("22:00");
  });

  it("never draws more than it was allowed to, by one", () => {
    for (const hours of [0.001, 0.1, 1, 30, 24 * 7, 24 * 400]) {
      expect(timeTicks(day, day + hours * 3_600_000, 6).length).toBeLessThanOrEqual(7);
    }
  });
});

describe("linear", () => {
  it("maps a domain without extent to its beginning", () => {
    expect(linear([5, 5], [0, 10])(5)).toBe(0);
  });
});

it("writes neighbouring ticks so that they differ", () => {
  for (const [low, high] of [
    [100.1, 100.4],
    [0.0001, 0.0004],
    [2_000_001, 2_000_004],
    [-3, 3],
  ] as const) {
    const ticks = numberTicks(low, high);
    expect(new Set(ticks.map(tickText)).size).toBe(ticks.length);
  }
  expect([0, 1_250, 2.5, 5_000_000].map(tickText)).toEqual(["0", "1,250", "2.5", "5M"]);
});
