import { describe, expect, it } from "vitest";

import type { EntityValue } from "./queries";
import { hasNothingStored, judged, summary, whyNoHistory } from "./values";

const NOW = Date.UTC(2026, 0, 1);
const value = (more: Partial<EntityValue>): EntityValue => ({
  feature: "total",
  value: 1,
  as_of: new Date(NOW - 60_000).toISOString(),
  written_at: null,
  age_ms: 60_000,
  source: "online",
  rule: "age",
  current_at: null,
  sla_ms: 300_000,
  is_fresh: true,
  violations: [],
  problem: null,
  ...more,
});
const violation = (name: string, reason: "stale" | "missing" | "default") => ({
  kind: "feature" as const,
  name,
  entity_id: "ada",
  age_ms: 400_000,
  sla_ms: 300_000,
  reason,
  used_by: name === "total" ? null : "total",
});

describe("judged", () => {
  it.each([
    [{}, "fresh", "fresh"],
    [{ as_of: new Date(NOW - 250_000).toISOString() }, "ageing", "ageing"],
    [{ is_fresh: false, violations: [violation("total", "stale")] }, "failed", "too old"],
    [{ is_fresh: false, violations: [violation("total", "missing")] }, "failed", "no value"],
    [{ is_fresh: false, violations: [violation("total", "default")] }, "failed", "default"],
    [
      { is_fresh: false, sla_ms: null, violations: [violation("other", "stale")] },
      "failed",
      "stale input",
    ],
    [{ is_fresh: null, source: "default" as const }, "unknown", "default"],
    [{ is_fresh: null, source: "missing" as const }, "unknown", "no value"],
    [{ is_fresh: null, sla_ms: null }, "unknown", "no SLA"],
    [
      { problem: { type: "x", title: "Failed", status: 500, detail: "why" }, is_fresh: null },
      "failed",
      "failed",
    ],
  ])("judges %o", (more, state, word) => {
    expect(judged(value(more), NOW)).toEqual({ state, word });
  });

  it("counts the age from the moment at which a value was known to be current", () => {
    const old = { as_of: new Date(NOW - 290_000).toISOString() };
    const current = value({ ...old, current_at: new Date(NOW - 1_000).toISOString() });
    expect(judged(current, NOW).state).toBe("fresh");
  });
});

describe("summary", () => {
  it("counts each state", () => {
    const all = [value({}), value({}), value({ is_fresh: null, source: "missing" })];
    expect(summary(all, NOW)).toBe("2 fresh, 1 no value");
  });
});

describe("whyNoHistory", () => {
  const listing = (more: object) =>
    ({
      template: null,
      needs: [],
      derived: false,
      triggers: [],
      refresh: null,
      schedule: null,
      next_runs: [],
      ttl_ms: null,
      log: false,
      window: null,
      ...more,
    }) as unknown as Parameters<typeof whyNoHistory>[0];

  it.each([
    { triggers: ["purchase"] },
    { refresh: "5m" },
    { mode: "stored" },
    { ttl_ms: 5 },
    { log: true },
  ])("finds a history of %o", (more) => {
    expect(whyNoHistory(listing(more))).toBeNull();
  });

  it("names the features to look at instead", () => {
    expect(whyNoHistory(listing({ template: "{tier}", needs: ["tier"] }))).toContain("of tier");
    expect(whyNoHistory(listing({}))).toContain("log=True");
  });
});

describe("hasNothingStored", () => {
  it("is true if every feature that could have a value has none", () => {
    const [none, zero] = [value({ source: "missing" }), value({ source: "default" })];
    expect(hasNothingStored([none, zero, value({ source: "computed" })])).toBe(true);
    expect(hasNothingStored([none, value({ written_at: new Date(NOW).toISOString() })])).toBe(
      false,
    );
    expect(hasNothingStored([none, value({ value: 0, written_at: null })])).toBe(true);
    expect(hasNothingStored([value({ source: "computed" })])).toBe(false);
  });
});
