import { describe, expect, it } from "vitest";

import {
  budgetAt,
  durationText,
  PLACES,
  placeOfBudget,
  placeOfSla,
  positive,
  slaAt,
} from "./limits";

describe("the budget slider", () => {
  it("ends with the declared budget, which is not sent", () => {
    expect(budgetAt(PLACES, 120)).toBeNull();
    expect(placeOfBudget(null, 120)).toBe(PLACES);
  });

  it("never asks for less than one token or more than declared", () => {
    expect(budgetAt(0, 120)).toBe(1);
    for (let place = 0; place < PLACES; place += 1) {
      expect(budgetAt(place, 70)).toBeLessThanOrEqual(70);
    }
  });

  it("finds the place of a budget again", () => {
    expect(budgetAt(placeOfBudget(60, 120), 120)).toBe(60);
  });
});

describe("the SLA slider", () => {
  it("is logarithmic, in round numbers, and never longer than declared", () => {
    expect(slaAt(0, 300_000)).toBe(1_000);
    expect(slaAt(50, 300_000)).toBe(17_000);
    expect(slaAt(99, 300_000)).toBe(240_000);
    expect(slaAt(PLACES, 300_000)).toBeNull();
  });

  it("finds the place of an SLA again", () => {
    const place = placeOfSla(60_000, 300_000);
    expect(slaAt(place, 300_000)).toBe(60_000);
    expect(placeOfSla(null, 300_000)).toBe(PLACES);
    expect(placeOfSla(5_000, 1_000)).toBe(PLACES);
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
