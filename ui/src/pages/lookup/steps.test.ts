import { describe, expect, it } from "vitest";

import {
  brief,
  causeWords,
  drawnSegments,
  eventId,
  isNumeric,
  knownAt,
  merged,
  momentOf,
  rangeFor,
  rangeOf,
  segmentAt,
  segments,
  startOf,
  type Step,
} from "./steps";

const at = (second: number) => new Date(Date.UTC(2026, 0, 1, 0, 0, second)).toISOString();
const time = (second: number) => Date.parse(at(second));
const step = (second: number, value: unknown, more: Partial<Step> = {}): Step => ({
  value,
  as_of: at(second),
  written_at: at(second),
  cause: `e${second}`,
  event: null,
  ...more,
});

describe("segments", () => {
  it("gives each value the time until the next one", () => {
    const found = segments([step(20, 5), step(10, 2)], null, null, time(30));
    expect(found.map(({ from, to }) => [from, to])).toEqual([
      [time(10), time(20)],
      [time(20), time(30)],
    ]);
    expect(found.map(({ change }) => change)).toEqual([null, 3]);
  });

  it("begins with the value that counted at the start of the range", () => {
    const found = segments([step(20, 5)], step(1, 2), time(10), time(30));
    expect(found.map(({ from, step: { value } }) => [from, value])).toEqual([
      [time(10), 2],
      [time(20), 5],
    ]);
  });

  it("lets a value ahead of the clock end where it begins", () => {
    const [last] = segments([step(40, 1)], null, null, time(30));
    expect(last?.to).toBe(time(40));
  });

  it("shows decimals without binary noise", () => {
    const found = segments([step(20, 0.3), step(10, 0.1)], null, null, time(30));
    expect(found[1]?.change).toBe(0.2);
  });

  it("draws the keys of a window together, where they can be added", () => {
    const found = segments([step(20, { a: 1, b: 2 }), step(10, {})], null, null, time(30));
    const of = (aggregate: string) =>
      ({ window: { aggregate } }) as unknown as Parameters<typeof drawnSegments>[1];
    const values = (feature: Parameters<typeof drawnSegments>[1]) =>
      drawnSegments(found, feature).map(({ step: { value } }) => value);
    expect(values(of("sum"))).toEqual([0, 3]);
    expect(values(of("max"))).toEqual([{}, { a: 1, b: 2 }]);
    expect(values(undefined)).toEqual([{}, { a: 1, b: 2 }]);
  });

  it("finds the value of a moment", () => {
    const found = segments([step(20, 5), step(10, 2)], null, null, time(30));
    expect([5, 10, 19, 25].map((second) => segmentAt(found, time(second)))).toEqual([-1, 0, 0, 1]);
  });
});

describe("the time of a record", () => {
  it("is read from the address", () => {
    expect(momentOf(at(5))).toBe(time(5));
    expect([null, "", "yesterday"].map(momentOf)).toEqual([null, null, null]);
  });

  it("has the value that was known then, without events that arrived later", () => {
    const steps = [step(30, 3), step(20, 2, { written_at: at(40) }), step(10, 1)];
    const values = [5, 10, 25, 30].map((second) => knownAt(steps, time(second))?.value);
    expect(values).toEqual([undefined, 1, 1, 3]);
  });
});

describe("pages", () => {
  it("keeps one of the steps that two pages share", () => {
    expect(
      merged([
        [step(3, 1), step(2, 1)],
        [step(2, 1), step(1, 1)],
      ]).length,
    ).toBe(3);
  });
});

describe("values", () => {
  it("knows numbers from everything else", () => {
    expect(isNumeric([step(1, 2), step(2, null)])).toBe(true);
    expect(isNumeric([step(1, true)])).toBe(false);
    expect(isNumeric([step(1, "2")])).toBe(false);
    expect(isNumeric([])).toBe(false);
  });

  it("fits on one line", () => {
    expect(brief({ a: "b" })).toBe('{"a":"b"}');
    expect(brief("x\n y")).toBe("x y");
    expect(brief("x".repeat(200), 10)).toBe(`${"x".repeat(10)}…`);
  });
});

describe("causes", () => {
  const event = { event_id: "e1", event_type: "purchase", timestamp: at(1), received_at: at(1) };

  it.each([
    [{ cause: "e1", event }, "purchase", "e1"],
    [{ cause: "e1" }, "event", "e1"],
    [{ cause: "set" }, "set by the application", null],
    [{ cause: "refresh:tier:2026" }, "scheduled run", null],
    [{ cause: "redrive:7" }, "redriven dead letter", null],
    [{ cause: "redrive:7:e1" }, "redriven dead letter", "e1"],
    [{ cause: "import:5" }, "imported", null],
  ])("puts %o into words", (more, words, id) => {
    expect(causeWords(step(1, 1, more))).toBe(words);
    expect(eventId(step(1, 1, more))).toBe(id);
  });
});

describe("ranges", () => {
  it("takes an unknown range for all", () => {
    expect(rangeOf("9y")).toBe("all");
    expect(startOf("all", 5)).toBeNull();
    expect(startOf(rangeOf("1h"), 3_600_000)).toBe(0);
  });
});

it("shows a window in a range in which it rises and falls", () => {
  const hour = 3_600_000;
  expect([hour / 4, hour, 24 * hour, 168 * hour, 720 * hour].map(rangeFor)).toEqual([
    "1h",
    "24h",
    "7d",
    "30d",
    "all",
  ]);
});

it("tells that a window fell because time passed", () => {
  expect(causeWords(step(1, 0, { cause: "passed" }))).toBe("time passed");
  expect(eventId(step(1, 0, { cause: "passed" }))).toBeNull();
  expect(causeWords(step(1, 0, { cause: "import#2" }))).toBe("imported");
});
