/** The outcomes of a context, arranged for a page. Pure. */
import type { Schema } from "~/api/client";
import { count, percent, short } from "~/design/format";

export type Message = Schema<"Message">;

/** What is not known is left out of the JSON, or null. */
export type Usage = Partial<Schema<"Usage">>;
export type Response = Partial<Omit<Schema<"Response">, "usage">> & { usage?: Usage | null };
export type Score = Partial<Schema<"Score">> & { name: string };
export type Outcome = Omit<Schema<"Outcome">, "response" | "score"> & {
  response: Response | null;
  score: Score | null;
};

/** What a person adds: a score or a correction. */
export type NewOutcome = {
  outcome_id: string;
  judge: "human";
  links: Record<string, string>;
} & (({ score: string; explanation?: string } & Given) | { correction: string });

/** The value of a score: one of these. */
export type Given = { flag: boolean } | { value: number } | { label: string };

/** An answer or a failed call, with what was said about it. */
export type Answer = { given: Outcome | null; said: readonly Outcome[] };

/** Return answers and failed calls in the order of time. What names none of them belongs to the last
 * answer before it, or to the context itself. */
export function answersOf(outcomes: readonly Outcome[]): Answer[] {
  const sorted = outcomes.toSorted((one, two) => Date.parse(one.at) - Date.parse(two.at));
  const given = sorted.filter(({ kind }) => kind === "response" || kind === "error");
  const responses = given.filter(({ kind }) => kind === "response");
  const said = new Map<Outcome | null, Outcome[]>([
    [null, []],
    ...given.map((each) => [each, []] as [Outcome, Outcome[]]),
  ]);
  for (const each of sorted) {
    if (given.includes(each)) continue;
    const named = Object.values(each.links);
    const answer =
      given.find(({ outcome_id: id }) => named.includes(id)) ??
      responses.findLast(({ at }) => Date.parse(at) <= Date.parse(each.at)) ??
      responses[0] ??
      null;
    said.get(answer)?.push(each);
  }
  return [...said]
    .map(([each, about]) => ({ given: each, said: about }))
    .filter(({ given: each, said: about }) => each !== null || about.length > 0);
}

/** Return what a judge gave: `yes`, `0.8`, `on topic`; null if it is withheld. */
export function scoreText({ value, label, flag, text }: Score): string | null {
  if (typeof flag === "boolean") return flag ? "yes" : "no";
  if (typeof value === "number") return short(value);
  return label ?? text ?? null;
}

/** Return all text of an answer. */
export function answerText({ messages }: Response): string {
  return (messages ?? [])
    .flatMap(({ parts }) => parts)
    .map((part) => (part.type === "text" ? part.content : ""))
    .join("");
}

/** Return how far the prediction of a context's tokens was off: `+6, 0.5 %`. */
export function errorText(predicted: number, billed: number): string {
  const off = billed - predicted;
  if (off === 0) return "exact";
  const share = predicted === 0 ? "" : `, ${percent(Math.abs(off) / predicted)}`;
  return `${off > 0 ? "+" : "−"}${count(Math.abs(off))}${share}`;
}

/** Return the usage in words, one line for each kind of tokens. */
export function usageWords({ input, output, cache_read, cache_write, reasoning }: Usage): string[] {
  const cached = [
    amount(cache_read, "read from the cache"),
    amount(cache_write, "written to the cache"),
  ].filter((each) => each !== null);
  const lines = [
    typeof input === "number" && withNote(`${count(input)} in`, cached),
    typeof output === "number" &&
      withNote(
        `${count(output)} out`,
        [amount(reasoning, "of reasoning")].filter((each) => each !== null),
      ),
  ];
  return lines.filter((line) => line !== false);
}

function amount(tokens: number | null | undefined, words: string): string | null {
  return tokens ? `${count(tokens)} ${words}` : null;
}

function withNote(text: string, notes: readonly string[]): string {
  return notes.length === 0 ? text : `${text} (${notes.join(", ")})`;
}

/** Return the name of whoever judged, and what they are: `ada`, `rubric-2 (model)`. */
export function whoSaid({ actor, judge, source }: Outcome): string {
  const name = actor ?? source ?? (judge === "human" ? "a person" : `a ${judge ?? "caller"}`);
  return judge && judge !== "human" && name !== `a ${judge}` ? `${name} (${judge})` : name;
}

/** Return what a copy lacks, in words; null if it has everything. */
export function absentWords({ withheld, redacted }: Outcome): string | null {
  if (redacted.length > 0) return `redacted: ${redacted.join(", ")}`;
  return withheld.length > 0 ? `withheld: ${withheld.join(", ")}` : null;
}
