import { count, inline, money, percent, plural } from "~/design/format";

import type { Evaluated, Filters, Report } from "./queries";

type Summary = Report["summary"];

/** Every way in which a context may differ, as the filter names it. */
export const KINDS: readonly (readonly [NonNullable<Filters["kind"]>, string])[] = [
  ["gained", "Items gained"],
  ["lost", "Items lost"],
  ["cut", "Items cut"],
  ["edited", "Items edited"],
  ["reordered", "Reordered"],
  ["values", "Values changed"],
  ["tokens", "Tokens"],
  ["price", "Price"],
  ["freshness", "Freshness"],
  ["refusal", "Refusals"],
];

/** Say in one sentence what a run found, or how far it is. */
export function titleOf({ run, summary }: Report): string {
  if (!run.finished_at) return `${count(summary.contexts)} of ${plural(run.count, "context")} done`;
  if (summary.contexts === 0) return "The cohort has no contexts";
  const failed = summary.failed === 0 ? "" : `, ${count(summary.failed)} fail`;
  if (summary.changed === 0 && failed === "") {
    return summary.identical === 0 ? "No context could be assembled again" : "No context changes";
  }
  const of = `of ${plural(summary.contexts, "context")}`;
  return `${count(summary.changed)} ${of} change${failed}`;
}

/** Return how exact a number is: `all exact`, `3 approximate`, or nothing for none. */
export function fidelityOf(name: string, number: number, summary: Summary): string {
  const approximate = summary.approximate[name] ?? 0;
  if (number === 0) return "";
  if (approximate === 0) return "all exact";
  return approximate === number ? "all approximate" : `${count(approximate)} approximate`;
}

/** Return by how much a number that stands nearby has grown: `before 62 (+4.8 %)`, `as before`. */
export function growth(before: number, after: number, shown = count): string {
  if (before === after) return "as before";
  const share =
    before === 0 ? "" : ` (${after > before ? "+" : "−"}${percent(Math.abs(after / before - 1))})`;
  return `before ${shown(before)}${share}`;
}

/** Return the probability that chance explains a difference: `0.03`, `< 0.001`. */
export function chanceOf(probability: number): string {
  return probability < 0.001 ? "< 0.001" : String(Number(probability.toFixed(3)));
}

/** Say whether the mean of a score moved, and whether that may be chance. */
export function meaningOf(score: { before: number; after: number; p_value: number }): string {
  if (score.before === score.after) return "the same";
  const direction = score.after > score.before ? "higher" : "lower";
  return score.p_value < 0.05 ? direction : `${direction}, which may be chance`;
}

/** Return the text of a gate with its amounts of USD as prices are written elsewhere. */
export function pricesIn(text: string): string {
  const amounts = [...text.matchAll(USD)].map(([, amount]) => nanoUsd(amount));
  const largest = Math.max(0, ...amounts);
  return text.replace(USD, (_, amount: string) => money(nanoUsd(amount), largest));
}

const USD = /([\d,]+(?:\.\d+)?) USD/g;

function nanoUsd(amount = "0"): number {
  return Number(amount.replaceAll(",", "")) * 1e9;
}

/** Return the features file of a run and its options as they are typed: `app.py --max-tokens 60`. */
export function commandOf(run: {
  file: string;
  options: Readonly<Record<string, unknown>>;
}): string {
  const texts = Object.entries(run.options).flatMap(([name, value]) => {
    const values: unknown[] = Array.isArray(value) ? value : [value];
    return values
      .filter((each) => each !== null && each !== undefined && each !== false)
      .map((each) => `--${name.replaceAll("_", "-")} ${inline(each)}`);
  });
  return [run.file, ...texts].join(" ");
}

/** Return the declarations that caused a difference or failure: `feature churn_risk`. */
export function causesOf({ causes, status }: Evaluated): readonly string[] {
  const labels = causes.map(({ kind, name }) => `${kind} ${name}`);
  return labels.length === 0 && status === "changed" ? ["unexplained"] : labels;
}

/** Return the address of a run, or of both sides of one of its contexts. */
export function hrefOf(cohort: string, run: string, context?: string): string {
  if (context === undefined) {
    return `/evaluations/${encodeURIComponent(cohort)}/${encodeURIComponent(run)}`;
  }
  return `/compare?${new URLSearchParams({ cohort, run, context }).toString()}`;
}
