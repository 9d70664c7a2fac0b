import { expect, it } from "vitest";

import {
  absentWords,
  answersOf,
  errorText,
  scoreText,
  usageWords,
  whoSaid,
  type Outcome,
} from "./model";

function outcome(id: string, kind: Outcome["kind"], minute: number, more: object = {}): Outcome {
  const at = `2026-11-17T10:${String(minute).padStart(2, "0")}:00Z`;
  const rest = { links: {}, withheld: [], redacted: [], response: null, score: null };
  return { outcome_id: id, kind, at, ...rest, ...more } as unknown as Outcome;
}

const ids = (outcomes: readonly Outcome[]) =>
  answersOf(outcomes).map(({ given, said }) => [
    given?.outcome_id ?? null,
    ...said.map((each) => each.outcome_id),
  ]);

it("puts scores below the answer that they name, or below the last one before them", () => {
  const first = outcome("first", "response", 1);
  const second = outcome("second", "response", 3);
  const between = outcome("between", "score", 2);
  const later = outcome("later", "score", 4);
  const named = outcome("named", "correction", 5, { links: { answer: "first" } });
  expect(ids([named, later, second, between, first])).toEqual([
    ["first", "between", "named"],
    ["second", "later"],
  ]);
});

it("keeps a failed call apart from the answer that was given then, and its scores", () => {
  const failed = outcome("failed", "error", 1);
  const answer = outcome("answer", "response", 2);
  const early = outcome("early", "score", 1);
  expect(ids([failed, early, answer])).toEqual([["failed"], ["answer", "early"]]);
});

it("shows scores of a context whose answer was not recorded", () => {
  expect(ids([outcome("score", "score", 1)])).toEqual([[null, "score"]]);
  expect(ids([])).toEqual([]);
});

it("says what a judge gave", () => {
  expect(scoreText({ name: "helpful", flag: false })).toBe("no");
  expect(scoreText({ name: "quality", value: 0.8512 })).toBe("0.85");
  expect(scoreText({ name: "quality", value: 0 })).toBe("0");
  expect(scoreText({ name: "tone", label: "rude" })).toBe("rude");
  expect(scoreText({ name: "note", text: "too long" })).toBe("too long");
  expect(scoreText({ name: "tone", label: null })).toBeNull();
});

it("says who judged, and how", () => {
  const judged = (more: object) => whoSaid(outcome("score", "score", 1, more));
  expect(judged({ actor: "ada", judge: "human" })).toBe("ada");
  expect(judged({ actor: "rubric", judge: "model" })).toBe("rubric (model)");
  expect(judged({ judge: "model" })).toBe("a model");
  expect(judged({ source: "langfuse" })).toBe("langfuse");
  expect(judged({ judge: "human" })).toBe("a person");
});

it("compares predicted with billed tokens", () => {
  expect(errorText(1_200, 1_206)).toBe("+6, 0.5 %");
  expect(errorText(1_200, 1_000)).toBe("−200, 16.7 %");
  expect(errorText(1_200, 1_200)).toBe("exact");
  expect(errorText(0, 4)).toBe("+4");
});

it("counts cached tokens and those of reasoning as parts of the others", () => {
  expect(usageWords({ input: 832, output: 58, cache_read: 512, reasoning: 20 })).toEqual([
    "832 in (512 read from the cache)",
    "58 out (20 of reasoning)",
  ]);
  expect(usageWords({ output: 3 })).toEqual(["3 out"]);
  expect(usageWords({})).toEqual([]);
});

it("names what a copy lacks", () => {
  expect(absentWords(outcome("a", "score", 1))).toBeNull();
  expect(absentWords(outcome("a", "score", 1, { redacted: ["/score/label"] }))).toBe(
    "redacted: /score/label",
  );
});
