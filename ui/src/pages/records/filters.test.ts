import { describe, expect, it } from "vitest";

import { callOf, changed, filtersOf, hasOutcomes, isNarrowed, problemOf, queryOf } from "./filters";

const read = (text: string) => filtersOf(new URLSearchParams(text), "7d");

describe("filters", () => {
  it("reads the names of the API and leaves out what is not valid", () => {
    expect(read("name=support&freshness_status=degraded&prefix=%20&range=24h&x=1")).toEqual({
      name: "support",
      freshness_status: "degraded",
      range: "24h",
    });
    expect(read("freshness_status=stale&start=yesterday&range=2y")).toEqual({ range: "7d" });
  });

  it("takes scores that the server takes, and leaves out what is being typed", () => {
    for (const score of ["helpful", "helpful<3", "helpful >= -0.5", "a b!=1e3", "ok=TRUE"]) {
      expect(problemOf("score", score)).toBeNull();
    }
    for (const score of ["helpful<", "=3", "helpful<many", "helpful<true", "a=1=2"]) {
      expect(problemOf("score", score)).not.toBeNull();
    }
    expect(problemOf("label", "tone=")).not.toBeNull();
    expect(read("score=helpful%3C&label=tone%3Drude&error=Timeout&answer_model=gpt")).toEqual({
      label: "tone=rude",
      error: "Timeout",
      answer_model: "gpt",
      range: "7d",
    });
    expect([hasOutcomes(read("error=Timeout")), hasOutcomes(read("name=a"))]).toEqual([
      true,
      false,
    ]);
  });

  it("counts a range back from now, and prefers an exact one", () => {
    const now = Date.UTC(2026, 10, 16, 12);
    expect(queryOf(read("range=24h"), now)).toEqual({ start: "2026-11-15T12:00:00.000Z" });
    expect(queryOf(read("range=all&caller=web"), now)).toEqual({ caller: "web" });
    expect(queryOf(read("end=2026-11-16T00:00:00Z"), now)).toEqual({
      end: "2026-11-16T00:00:00.000Z",
    });
  });

  it("changes some parameters and keeps the others", () => {
    const params = new URLSearchParams("name=a&range=1h&other=1");
    const next = changed(params, { name: undefined, caller: "web", range: "" });
    expect(next.toString()).toBe("other=1&caller=web");
  });

  it("knows whether anything besides time is filtered", () => {
    expect(isNarrowed(read("range=1h&start=2026-01-01"))).toBe(false);
    expect(isNarrowed(read("prefix=01"))).toBe(true);
  });
});

describe("calls", () => {
  it("writes a list as a command and as code", () => {
    const call = callOf({ name: "it's", start: "2026-01-01T00:00:00.000Z" });
    expect(call.path).toBe("/v1/contexts?name=it%27s&start=2026-01-01T00%3A00%3A00.000Z");
    expect(call.cli).toEqual([
      ...["context", "list", "--name", "it's"],
      ...["--since", "2026-01-01T00:00:00.000Z"],
    ]);
    expect(call.python).toContain('start=datetime.fromisoformat("2026-01-01T00:00:00.000Z")');
    expect(call.imports).toEqual(["from datetime import datetime"]);
  });

  it("writes a search by provenance, and no command that does not exist", () => {
    const call = callOf({ feature: "spend", entity_id: "ada" });
    expect(call.cli).toEqual(["context", "find", "--feature", "spend", "--entity-id", "ada"]);
    expect(call.python).toBe('records.find(feature="spend", entity_id="ada")');
    expect(callOf({ feature: "spend", name: "support" }).cli).toBeNull();
    expect(callOf({ prefix: "01a1" }).cli).toBeNull();
    expect(callOf({ score: "helpful<3", answer_model: "gpt" }).cli).toEqual([
      ...["context", "list", "--score", "helpful<3", "--answer-model", "gpt"],
    ]);
  });
});
