import { describe, expect, it } from "vitest";

import { ageRows } from "./ageRows";
import { firstOf, viewOf, type Trace } from "./model";
import { reasonsOf } from "./violations";

const HOUR = 3_600_000;
const AT = "2026-01-02T03:04:05.678901Z";
const HISTORY =
  "/lookup?entity=Product&id=tent-4&feature=lead_days&at=2026-01-02T03%3A04%3A05.678901Z";

const value = {
  feature: "lead_days",
  entity: "Product",
  entity_id: "tent-4",
  age_ms: 10 * HOUR,
  sla_ms: 5 * HOUR,
  fresh: false,
  rule: "age",
  source: "online",
  value: 3,
  as_of: "2026-01-01T17:04:05Z",
  written_at: "2026-01-01T17:04:05Z",
  inputs: [],
  used: true,
};

const violation = {
  kind: "feature",
  name: "lead_days",
  entity_id: "tent-4",
  age_ms: 10 * HOUR,
  sla_ms: 5 * HOUR,
  reason: "stale",
  used_by: null,
};

function trace(violations: object[], more: object = {}): Trace {
  const parts = {
    features: [],
    retrievers: [],
    contexts: [],
    items: [],
    redacted: [],
    withheld: [],
  };
  const facts = { created_at: AT, freshness_sla_ms: 24 * HOUR };
  return { ...facts, ...parts, ...more, freshness_violations: violations } as unknown as Trace;
}

describe("reasonsOf", () => {
  it("says whose value was too old, and leads to its history at the time", () => {
    expect(reasonsOf(trace([violation], { features: [value] }))).toEqual([
      {
        name: "lead_days",
        whose: "tent-4",
        words: "was 10 h old, SLA 5 h",
        usedBy: null,
        href: HISTORY,
      },
    ]);
  });

  it("finds a value among the inputs, and leads nowhere if the record withholds whose it is", () => {
    const outer = { ...value, feature: "offer", rule: "inputs", inputs: [value] };
    const input = { ...violation, used_by: "offer" };
    expect(reasonsOf(trace([input], { features: [outer] }))[0]?.href).toBe(HISTORY);
    const hidden = trace([{ ...violation, entity_id: null }], {
      features: [{ ...value, entity_id: null }],
    });
    expect(reasonsOf(hidden)[0]).toMatchObject({ whose: null, href: null });
  });

  it.each([
    [{ reason: "missing", age_ms: null }, "had no value, SLA 5 h"],
    [{ reason: "default", age_ms: null }, "was only a default, SLA 5 h"],
    [
      { reason: "never_ran", age_ms: null },
      "was a default, and no run has shown it to be true, SLA 5 h",
    ],
    [{ reason: "dead_letter", age_ms: null }, "lacked an event that is a dead letter"],
    [{ kind: "retrieval", name: "help", reason: "missing", sla_ms: 0 }, "failed to search"],
    [{ kind: "store", name: "redis", reason: "lost", sla_ms: 0 }, "had lost its data"],
  ])("puts %o into words", (more, words) => {
    const retrievers = [{ retriever: "help", failed: true }];
    expect(reasonsOf(trace([{ ...violation, ...more }], { retrievers }))[0]?.words).toBe(words);
  });

  it("tells inner contexts of one name apart, unless it cannot know", () => {
    const inner = (id: string, status: string) => ({
      context_id: id,
      name: "greeting",
      freshness_status: status,
    });
    const late = { ...violation, kind: "context", name: "greeting" };
    const hrefs = (violations: object[], contexts: object[]) =>
      reasonsOf(trace(violations, { contexts })).map(({ href }) => href);
    const contexts = [inner("a", "guaranteed"), inner("b", "degraded"), inner("c", "degraded")];
    expect(hrefs([late], contexts.slice(0, 2))).toEqual(["/records/b"]);
    expect(hrefs([late, { ...late }], contexts)).toEqual(["/records/b", "/records/c"]);
    expect(hrefs([late], [inner("a", "guaranteed")])).toEqual(["/records/a"]);
    expect(hrefs([late], contexts)).toEqual([null]);
  });
});

describe("ageRows", () => {
  it("names the entity, and the SLA where it is not that of the context", () => {
    const fresh = { ...value, entity_id: "tent-5", fresh: true, age_ms: 1, sla_ms: 24 * HOUR };
    const rows = ageRows(trace([], { features: [fresh, value] }));
    expect(rows.map(({ whose, ownSla }) => [whose, ownSla])).toEqual([
      ["tent-4", 5 * HOUR],
      ["tent-5", null],
    ]);
    expect(rows[0]?.href).toBe(HISTORY);
  });
});

describe("firstOf", () => {
  const item = (kind: string, reads: number[]) => ({
    source_kind: kind,
    source_ref: null,
    content: kind,
    emitted: kind,
    decision: "included",
    section: null,
    reads,
  });

  it("selects the first item with an input that is not fresh, otherwise one with a source", () => {
    const items = [item("literal", []), item("template", []), item("template", [0])];
    expect(firstOf(viewOf(trace([], { items, features: [value] })))).toBe(2);
    expect(firstOf(viewOf(trace([], { items, features: [{ ...value, fresh: true }] })))).toBe(1);
    expect(firstOf(viewOf(trace([], { items: [item("literal", [])] })))).toBe(0);
  });
});
