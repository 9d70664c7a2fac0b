import { describe, expect, it } from "vitest";

import { budgetPlaces, durationText, placeOfSla, positive, slaStops } from "./limits";

describe("the budget slider", () => {
  it.each([1, 72, 199, 200, 201, 4_000, 1_000_000])("reaches %i and few tokens", (largest) => {
    const { min, max, step } = budgetPlaces(largest);
    expect(max).toBe(largest);
    expect((max - min) % step).toBe(0);
    expect(min).toBeGreaterThanOrEqual(1);
    expect(min).toBeLessThanOrEqual(step);
    expect((max - min) / step).toBeLessThanOrEqual(200);
  });
});

describe("the SLA slider", () => {
  it("has round durations below the declared one", () => {
    const stops = slaStops(300_000);
    expect(stops[0]).toBe(1_000);
    expect(stops.at(-1)).toBe(120_000);
    expect(slaStops(1_000)).toEqual([]);
  });

  it("finds the place of an SLA, and the declared one behind the last", () => {
    const stops = slaStops(300_000);
    expect(stops[placeOfSla(60_000, stops)]).toBe(60_000);
    expect(stops[placeOfSla(61_000, stops)]).toBe(120_000);
    expect(placeOfSla(null, stops)).toBe(stops.length);
    expect(placeOfSla(900_000, stops)).toBe(stops.length - 1);
  });
});

describe("durationText", () => {
  it("writes durations as the API reads them", () => {
    expect(durationText(90_000)).toBe("90s");
    expect(durationText(1_500)).toBe("1500ms");
  });
});

describe("positive", () => {
  it.each([
    ["60", 60],
    ["0", null],
    ["-3", null],
    ["many", null],
    ["", null],
    [null, null],
  ])("reads %s as %s", (text, number) => {
    expect(positive(text)).toBe(number);
  });
});
