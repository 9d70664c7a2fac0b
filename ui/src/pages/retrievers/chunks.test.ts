import { describe, expect, it } from "vitest";

import { conditions, differences, shares, type Hit, type Index } from "./chunks";

const hit = (score: number | null) => ({ score }) as Hit;

describe("shares", () => {
  it("fills the bar of the best score", () => {
    expect(shares([hit(4), hit(1), hit(null)])).toEqual([1, 0.25, null]);
  });

  it("draws no bar below zero, and none if nothing is above it", () => {
    expect(shares([hit(0.5), hit(-0.2)])).toEqual([1, 0]);
    expect(shares([hit(0), hit(-1)])).toEqual([0, 0]);
    expect(shares([])).toEqual([]);
  });
});

describe("differences", () => {
  const spec = { embedder: "lexical", dimensions: 256, chunk_tokens: 400, overlap: 40 };

  it("names what a reindex would change", () => {
    const index = { spec, declared_spec: { ...spec, overlap: 0 } } as Index;
    expect(differences(index)).toEqual(["overlap: built 40, declared 0"]);
    expect(differences({ ...index, declared_spec: null })).toEqual([]);
  });
});

describe("conditions", () => {
  it("puts filters into words", () => {
    expect(conditions({ lang: "en", year: { $gte: 2020 } })).toEqual([
      "lang = en",
      'year: {"$gte":2020}',
    ]);
    expect(conditions(null)).toEqual([]);
  });
});
