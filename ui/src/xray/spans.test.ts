import { describe, expect, it } from "vitest";

import { piecesOf, type TextSpan } from "./spans";

const span = (
  start: number,
  end: number,
  feature: string,
  input: number | null = null,
): TextSpan => ({
  start,
  end,
  feature,
  read: 0,
  input,
});

describe("piecesOf", () => {
  it("keeps a text without spans whole", () => {
    expect(piecesOf("plain", [])).toEqual([{ text: "plain", span: null, isBetween: false }]);
    expect(piecesOf("", [])).toEqual([]);
  });

  it("cuts a text where values begin and end", () => {
    const pieces = piecesOf("a: 12, b", [span(3, 5, "n")]);
    expect(pieces.map(({ text, span: found }) => [text, found?.feature])).toEqual([
      ["a: ", undefined],
      ["12", "n"],
      [", b", undefined],
    ]);
  });

  it("counts code points, not UTF-16 units", () => {
    const pieces = piecesOf("🌊🌊 ab 🌊c", [span(3, 5, "x"), span(6, 7, "y")]);
    expect(pieces.filter(({ span: found }) => found).map(({ text }) => text)).toEqual(["ab", "🌊"]);
  });

  it("names the innermost feature, and tells the words between", () => {
    const spans = [span(0, 9, "blurb"), span(0, 4, "tier", 0), span(6, 9, "visits", 1)];
    const pieces = piecesOf("gold, 123!", spans);
    expect(
      pieces.map(({ text, span: found, isBetween }) => [text, found?.feature, isBetween]),
    ).toEqual([
      ["gold", "tier", false],
      [", ", "blurb", true],
      ["123", "visits", false],
      ["!", undefined, false],
    ]);
  });

  it("is not confused by ranges beyond the text", () => {
    expect(piecesOf("abc", [span(1, 99, "n")]).map(({ text }) => text)).toEqual(["a", "bc"]);
  });
});
