import { describe, expect, it } from "vitest";

import { bounds, growth, highest, latest, lines, timeOf } from "./series";

describe("the numbers of the last hour", () => {
  it("shows the last known number across a gap", () => {
    expect(latest([1, 2, null])).toBe(2);
    expect(latest([null, null])).toBeNull();
    expect(growth([null, 2, null, 5])).toBe(3);
    expect(highest([null, 5, 2])).toBe(5);
    expect(highest([null])).toBeNull();
  });

  it("draws amounts from zero and shares from below the lowest", () => {
    expect(bounds([3, 7, null])).toEqual([0, 7]);
    expect(bounds([0, 0])).toEqual([0, 1]);
    expect(bounds([100, 99.5], 100)).toEqual([90, 100]);
    expect(bounds([100, 42], 100)).toEqual([40, 100]);
    expect(bounds([null], 100)).toEqual([90, 100]);
  });

  it("splits a line at its gaps", () => {
    expect(lines([0, null, 2, 1], [0, 2])).toEqual([
      [[0, 0]],
      [
        [2 / 3, 1],
        [1, 0.5],
      ],
    ]);
  });

  it("knows the time of each point", () => {
    expect(timeOf("2026-01-01T00:01:00Z", 10, 7, 0)).toBe(Date.parse("2026-01-01T00:00:00Z"));
  });
});
