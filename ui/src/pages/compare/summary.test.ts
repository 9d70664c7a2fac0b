import { expect, it } from "vitest";

import type { Schema } from "~/api/client";

import { listed, ruleText, sentenceOf, signed } from "./summary";

const NOTHING: Schema<"ContextDiff"> = {
  before: "a",
  after: "b",
  same_content: true,
  tokens_before: 5,
  tokens_after: 5,
  tokens_delta: 0,
  items: [],
  features: [],
  results: [],
  inputs: [],
  interaction_ref: [],
  rules: [],
  text: "",
};

it("says what changed, or that nothing did", () => {
  expect(sentenceOf(NOTHING)).toBe("The same text, from the same inputs");
  expect(sentenceOf({ ...NOTHING, after: "a" })).toBe("This is one context, compared with itself");
  const item = {
    identity: "x",
    change: "changed",
    tokens_delta: 3,
    before: null,
    after: null,
  } as const;
  const value = {
    change: "changed",
    feature: "f",
    entity: "E",
    entity_id: "1",
    before: null,
    after: null,
  } as const;
  const diff = {
    ...NOTHING,
    same_content: false,
    tokens_delta: -31,
    items: [{ ...item, flipped: true }],
    features: [value, value],
  };
  expect(sentenceOf(diff)).toBe(
    "Another text: 2 values changed, 1 decision flipped and −31 tokens",
  );
});

it("writes signs and lists", () => {
  expect([3, -3, 0].map(signed)).toEqual(["+3", "−3", "±0"]);
  expect([[], ["a"], ["a", "b"], ["a", "b", "c"]].map(listed)).toEqual([
    "",
    "a",
    "a and b",
    "a, b and c",
  ]);
});

it("shows durations among rules as durations", () => {
  expect(ruleText("freshness_sla_ms", 900_000)).toBe("15 m");
  expect(ruleText("max_tokens", 900_000)).toBe("900000");
  expect(ruleText("model", "gpt-4o")).toBe("gpt-4o");
});
