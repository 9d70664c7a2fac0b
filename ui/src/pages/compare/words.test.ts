import { describe, expect, it } from "vitest";

import { lineDiff, pairs, wordDiff, words } from "./words";

const marked = (parts: readonly { text: string; isChanged: boolean }[] | null) =>
  parts?.map(({ text, isChanged }) => (isChanged ? `[${text}]` : text)).join("") ?? null;

describe("words", () => {
  it("splits a text into parts that join to it again", () => {
    const text = "Żółć 12.5 €\n\u202eabc\u0000  ok_1 👍🏽";
    expect(words(text).join("")).toBe(text);
    expect(words("ab, c")).toEqual(["ab", ",", " ", "c"]);
  });

  it("marks the words that differ", () => {
    const { before, after } = wordDiff("silver customer: 50.0 spent", "gold customer: 72.5 spent");
    expect(marked(before)).toBe("[silver] customer: [50].[0] spent");
    expect(marked(after)).toBe("[gold] customer: [72].[5] spent");
  });
});

describe("lines", () => {
  it("pairs equal lines, and changed ones with each other", () => {
    const found = lineDiff("a\nb 1\nc\nd", "a\nb 2\nd\ne");
    expect(found.map(({ kind, before, after }) => [kind, marked(before), marked(after)])).toEqual([
      ["same", "a", "a"],
      ["changed", "b [1]", "b [2]"],
      ["removed", "[c]", null],
      ["same", "d", "d"],
      ["added", null, "[e]"],
    ]);
  });

  it("finds no difference between equal texts", () => {
    expect(lineDiff("x\ny", "x\ny").every(({ kind }) => kind === "same")).toBe(true);
  });

  it("does not compare texts that are too long, and keeps all of both", () => {
    const long = (mark: string) => Array.from({ length: 3_000 }, (_, n) => `${mark}${n}`);
    const found = pairs(long("a"), long("b"));
    expect(found).toHaveLength(6_000);
    expect(found.every(([one, two]) => one === null || two === null)).toBe(true);
  });
});
