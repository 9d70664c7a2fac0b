import { describe, expect, it } from "vitest";

import {
  ago,
  count,
  duration,
  exact,
  isRecent,
  money,
  percent,
  plural,
  short,
  shortened,
  pretty,
  wallTime,
} from "./format";

describe("wallTime", () => {
  it.each([
    ["2026-11-18T06:00:00+01:00", "Wed 18 Nov 2026 06:00 +01:00"],
    ["2026-11-18T06:05:12.250000Z", "Wed 18 Nov 2026 06:05:12 UTC"],
  ])("%s is %s", (iso, text) => expect(wallTime(iso)).toBe(text));
});

describe("duration", () => {
  it.each([
    [0, "0 ms"],
    [0.4, "< 1 ms"],
    [38, "38 ms"],
    [999.4, "999 ms"],
    [2_100, "2.1 s"],
    [59_960, "1 m"],
    [90_000, "1 m 30 s"],
    [22_320_000, "6 h 12 m"],
    [259_200_000, "3 d"],
    [-2_100, "−2.1 s"],
  ])("%d is %s", (ms, text) => expect(duration(ms)).toBe(text));
});

describe("times", () => {
  const now = Date.UTC(2026, 10, 14, 17, 14, 7);
  it("says how long ago", () => {
    expect(ago(now - 15 * 3_600_000, now)).toBe("15 h ago");
    expect(ago(now - 400, now)).toBe("now");
    expect(ago(now + 180_000, now)).toBe("in 3 m");
  });
  it("gives the exact time, and the year only of another year", () => {
    expect(exact(Date.UTC(2026, 10, 14, 2, 14, 7), { now })).toBe("14 Nov 02:14:07 UTC");
    expect(exact(Date.UTC(2025, 10, 14, 2, 14, 7), { now })).toBe("14 Nov 2025 02:14:07 UTC");
  });
  it("knows times of the last hour", () => {
    expect(isRecent(now - 59 * 60_000, now)).toBe(true);
    expect(isRecent(now - 4 * 3_600_000, now)).toBe(false);
  });
});

describe("numbers", () => {
  it("keeps them short", () => {
    expect([0, 0.1449, 12.345, 1240].map(short)).toEqual(["0", "0.14", "12.3", "1,240"]);
    expect(count(1_234_567)).toBe("1,234,567");
  });
  it("rounds no share up to the whole", () => {
    expect([0.9344, 0.99999, 1, 0].map(percent)).toEqual(["93.4 %", "99.9 %", "100 %", "0 %"]);
  });
  it("gives prices in cents", () => {
    expect(money(1_400_000)).toBe("0.14 ¢");
    expect(money(1_200_000_000)).toBe("$ 1.20");
    expect(money(980_000_000, 1_200_000_000)).toBe("$ 0.98");
  });
  it("leaves out the middle of an id", () => {
    expect(shortened("01a1e043-865e-71c3-878d-c07f111c18a9")).toBe("01a1e043…1c18a9");
    expect(shortened("ada")).toBe("ada");
    expect(plural(1, "event")).toBe("1 event");
    expect(plural(0, "entry", "entries")).toBe("0 entries");
  });
});

it("writes characters that turn a text around as escapes", () => {
  expect(pretty({ a: "\u202eabc" })).toBe('{\n  "a": "\\u202eabc"\n}');
});
