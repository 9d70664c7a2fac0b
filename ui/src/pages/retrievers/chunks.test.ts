import { describe, expect, it } from "vitest";

import { conditions, differences, shareOf, type Index } from "./chunks";

describe("shareOf", () => {
  it("fills a bar by the similarity, also that of the best chunk", () => {
    expect([0.17, 1, 1.2, -0.2].map((score) => shareOf(score, "vector"))).toEqual([0.17, 1, 1, 0]);
  });

  it("draws no bar for scores without a scale", () => {
    expect(shareOf(4, "text")).toBeNull();
    expect(shareOf(0.03, "hybrid")).toBeNull();
    expect(shareOf(0.5, null)).toBeNull();
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
