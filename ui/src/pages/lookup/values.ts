import type { Schema } from "~/api/client";
import { stateOfAge, type State } from "~/design";

import type { EntityValue } from "./queries";

type Judgement = { state: State; word: string };

/** Return the state of a value and the word for it. */
export function judged(value: EntityValue, now: number): Judgement {
  if (value.problem !== null) return { state: "failed", word: "failed" };
  if (value.is_fresh === false) return { state: "failed", word: lateness(value) };
  if (value.source === "missing") return { state: "unknown", word: "no value" };
  if (value.source === "default") return { state: "unknown", word: "default" };
  if (value.is_fresh === null) return { state: "unknown", word: "no SLA" };
  const state = stateOfAge(ageOf(value, now), value.sla_ms);
  return state === "ageing" ? { state, word: "ageing" } : { state: "fresh", word: "fresh" };
}

const WORST: readonly State[] = ["failed", "ageing", "unknown", "fresh"];

/** Return the judgement of several values: that of the worst of them. */
export function worst(values: readonly EntityValue[], now: number): Judgement {
  const each = values.map((value) => judged(value, now));
  const stored = each.filter(({ word }) => word !== "no value" && word !== "default");
  const found = (stored.length > 0 ? stored : each).sort(
    (one, two) => WORST.indexOf(one.state) - WORST.indexOf(two.state),
  );
  return found[0] ?? { state: "unknown", word: "no value" };
}

const REASONS = {
  stale: "too old",
  missing: "no value",
  default: "default",
  never_ran: "never ran",
  dead_letter: "dead letter",
  lost: "lost",
} as const;

/** Return why a value is not fresh: its own age, or that of a value it is computed from. */
function lateness({ violations, feature }: EntityValue): string {
  const own = violations.find(({ name }) => name === feature);
  return own === undefined ? "stale input" : REASONS[own.reason];
}

/** Return the age that freshness counts: since the value was known to be current. */
export function ageOf({ current_at, as_of }: EntityValue, now: number): number | null {
  const moment = current_at ?? as_of;
  return moment === null ? null : Math.max(0, now - Date.parse(moment));
}

/** Return how many values are in each state, in one line: `9 fresh, 1 too old`. */
export function summary(values: readonly EntityValue[], now: number): string {
  const counts = new Map<string, number>();
  for (const value of values) {
    const { word } = judged(value, now);
    counts.set(word, (counts.get(word) ?? 0) + 1);
  }
  return [...counts].map(([word, count]) => `${count} ${word}`).join(", ");
}

/**
 * Return whether an entity has no stored value where it could have one: its id may be mistyped. The
 * counts and sums of windows to which nothing contributed are 0.
 */
export function hasNothingStored(values: readonly EntityValue[]): boolean {
  return (
    values.every(({ source, written_at }) => source !== "online" || written_at === null) &&
    values.some(({ source }) => source === "default" || source === "missing")
  );
}

/** Return why no past values of a feature are stored; null if they are. */
export function whyNoHistory(feature: Schema<"FeatureListing">): string | null {
  const { template, needs, derived, triggers, refresh, ttl_ms, log, window, mode } = feature;
  if (template !== null) {
    return `A template is composed at every read and never stored. Look at the history of ${needs.join(", ")}.`;
  }
  if (derived) {
    return "A derived feature is computed at every read and never stored. Look at the features that it reads.";
  }
  // That of a window is computed from what events contributed to it.
  if (window !== null || mode === "stored") return null;
  if (triggers.length > 0 || refresh !== null || ttl_ms !== null || log) return null;
  return "It is computed at every read and not stored. Declare it with log=True to keep the values that are served.";
}

type Feature = Schema<"FeatureListing">;

/** Return the feature whose function is run for a value: of a window that of its family. */
export function handlerOf(
  features: readonly Feature[],
  feature: Feature | undefined,
): Feature | undefined {
  const family = feature?.window?.family;
  return family === undefined ? feature : features.find(({ name }) => name === family);
}

/** Return the event types that change a value. */
export function triggersOf(
  features: readonly Feature[],
  feature: Feature | undefined,
): readonly string[] {
  return handlerOf(features, feature)?.triggers ?? [];
}

/** Return whether the values of a feature are objects by key: those of a keyed family are. */
export function isKeyed(features: readonly Feature[], feature: Feature | undefined): boolean {
  return typeof handlerOf(features, feature)?.windows?.by === "string";
}
