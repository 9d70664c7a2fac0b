import { describe, expect, it } from "vitest";

import {
  accuracyWords,
  cellText,
  coverageWords,
  coveredSince,
  gridsOf,
  drawn,
  keyed,
  keyedText,
  nextToLeave,
  windowWords,
  type Feature,
} from "./model";

const HOUR = 3_600_000;
const week = { window: "7d", span_us: 7 * 24 * HOUR * 1_000, hop_us: 6 * HOUR * 1_000 };
const noon = Date.UTC(2026, 10, 17, 12);

const tile = (start: number, values: Record<string, unknown> = { sum: 1 }) => ({
  start: new Date(start).toISOString(),
  end: new Date(start + 6 * HOUR).toISOString(),
  values,
});

describe("a window", () => {
  it("covers its span and the rest of the hop in which that begins", () => {
    expect(coveredSince(week, noon)).toBe(noon - 7 * 24 * HOUR);
    expect(coveredSince(week, noon + HOUR)).toBe(noon - 7 * 24 * HOUR);
    expect(coveredSince(week, noon + 6 * HOUR)).toBe(noon - 7 * 24 * HOUR + 6 * HOUR);
  });

  it("is put in words", () => {
    expect(windowWords(week)).toBe("7d, moves every 6 h");
    expect(coverageWords(week)).toBe("between 7 d and 7 d 6 h");
    expect(accuracyWords({ error: null })).toBe("exact");
    expect(accuracyWords({ error: "1 % of the value" })).toContain("error 1 % of the value");
  });

  it("loses its oldest tile when a hop has passed", () => {
    const first = noon - 7 * 24 * HOUR;
    const tiles = [tile(first - 6 * HOUR), tile(first), tile(noon)];
    expect(nextToLeave(week, tiles, noon + HOUR)).toEqual({ tile: tiles[1], at: noon + 6 * HOUR });
    expect(nextToLeave(week, tiles.slice(0, 1), noon)).toBeNull();
  });
});

describe("a family", () => {
  const member = (family: string, aggregate: string, window: string) =>
    ({
      name: `${family}_${aggregate}_${window}`,
      window: { family, aggregate, window },
      windows: null,
    }) as unknown as Feature;

  it("finds its members by aggregate and window", () => {
    const family = { name: "spend", window: null, windows: { members: [] } } as unknown as Feature;
    const features = [family, member("spend", "sum", "1h"), member("other", "sum", "7d")];
    const [grid, ...others] = gridsOf(features);
    expect(others).toEqual([]);
    expect(grid?.name).toBe("spend");
    expect(grid?.memberAt("sum", "1h")).toBe("spend_sum_1h");
    expect(grid?.memberAt("sum", "7d")).toBeNull();
  });
});

describe("charts", () => {
  it("draw values that are numbers, and of keys what can be added", () => {
    expect(drawn(2.5, "sum")).toBe(2.5);
    expect(drawn({ a: 2, other: 3 }, "sum")).toBe(5);
    expect(drawn({}, "count")).toBe(0);
    expect(drawn({ a: 2 }, "max")).toBeNull();
    expect(drawn([1, 2], "last(2)")).toBeNull();
    expect(drawn(undefined, "sum")).toBeNull();
  });
});

describe("values", () => {
  it("are short in a cell", () => {
    expect(cellText(1234.567891)).toBe("1,234.57");
    expect([cellText(0), cellText(0.0000578704)]).toEqual(["0", "5.79e-5"]);
    expect(cellText([1, 2])).toBe("[1,2]");
    expect([cellText(undefined), cellText(null)]).toEqual(["–", "–"]);
    expect(cellText("a\nvery long text that goes on", 10)).toBe("a very lon…");
  });

  it("by key begin with the greatest; the rest of the keys is last", () => {
    const value = { books: 2, other: 9, games: 5, art: 5 };
    expect(keyed(value).map(([name]) => name)).toEqual(["art", "games", "books", "other"]);
    expect(keyed(null)).toEqual([]);
    expect(keyedText({ books: 2, games: 5 })).toBe("games 5, books 2");
  });
});
