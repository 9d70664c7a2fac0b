import type { Schema } from "~/api/client";
import { count, duration, inline, plural } from "~/design/format";

type Diff = Schema<"ContextDiff">;

/** Say in one sentence what changed between two contexts. */
export function sentenceOf(diff: Diff): string {
  if (diff.before === diff.after) return "This is one context, compared with itself";
  return changeOf(diff);
}

/** Say in one sentence what changed in one context that was assembled again. */
export function changeOf(diff: Diff): string {
  const parts = partsOf(diff);
  const text = diff.same_content ? "The same text" : "Another text";
  return parts.length === 0 ? `${text}, from the same inputs` : `${text}: ${listed(parts)}`;
}

/** Return the value of a rule as people read it: a duration, not a number of milliseconds. */
export function ruleText(name: string, value: unknown): string {
  return name.endsWith("_ms") && typeof value === "number" ? duration(value) : inline(value);
}

/** Return what changed, each in a few words, the most telling first. */
export function partsOf(diff: Diff): string[] {
  const flipped = diff.items.filter((item) => item.flipped).length;
  const values = diff.features.filter(({ change }) => change === "changed").length;
  const items = (kind: string) =>
    diff.items.filter(({ change, flipped }) => change === kind && !flipped).length;
  const moved = diff.results.filter(({ change }) => change !== "same").length;
  const found: [number, string][] = [
    [diff.inputs.length, `${plural(diff.inputs.length, "input")} changed`],
    [values, `${plural(values, "value")} changed`],
    [flipped, `${plural(flipped, "decision")} flipped`],
    [items("changed"), `${plural(items("changed"), "item")} changed`],
    [items("added"), `${plural(items("added"), "item")} added`],
    [items("removed"), `${plural(items("removed"), "item")} removed`],
    [moved, `${plural(moved, "search result")} moved`],
    [diff.rules.length, `${plural(diff.rules.length, "rule")} changed`],
  ];
  const parts = found.filter(([number]) => number > 0).map(([, words]) => words);
  if (diff.tokens_delta !== 0) parts.push(`${signed(diff.tokens_delta)} tokens`);
  return parts;
}

/** Return a number with its sign. */
export function signed(value: number): string {
  return value > 0 ? `+${count(value)}` : value < 0 ? `−${count(-value)}` : "±0";
}

/** Join words as in a sentence: `a, b and c`. */
export function listed(words: readonly string[]): string {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}
