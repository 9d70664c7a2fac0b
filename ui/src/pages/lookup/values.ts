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

/** Return whether an entity has no stored value where it could have one: its id may be mistyped. */
export function hasNothingStored(values: readonly EntityValue[]): boolean {
  return (
    values.every(({ source }) => source !== "online") &&
    values.some(({ source }) => source === "default" || source === "missing")
  );
}

/** Return why no past values of a feature are stored; null if they are. */
export function whyNoHistory(feature: Schema<"FeatureListing">): string | null {
  const { template, needs, derived, triggers, refresh_ms, ttl_ms, log } = feature;
  if (template !== null) {
    return `A template is composed at every read and never stored. Look at the history of ${needs.join(", ")}.`;
  }
  if (derived) {
    return "A derived feature is computed at every read and never stored. Look at the features that it reads.";
  }
  if (triggers.length > 0 || refresh_ms !== null || ttl_ms !== null || log) return null;
  return "It is computed at every read and not stored. Declare it with log=True to keep the values that are served.";
}
