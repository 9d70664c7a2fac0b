import type { Schema } from "~/api/client";

/** The limits that a run may tighten: from a slider's place to what the API takes. Pure. */

export type ContextListing = Schema<"ContextListing">;

/** Limits of one run; null keeps the declared one. */
export type Limits = { maxTokens: number | null; slaMs: number | null };

export const DECLARED: Limits = { maxTokens: null, slaMs: null };

/** The places of a slider; the last one stands for the declared limit. */
export const PLACES = 100;

const UNLIMITED_TOKENS = 4_000;
const UNLIMITED_MS = 24 * 3_600_000;
const SHORTEST_MS = 1_000;

/** Return the largest budget of the slider: the declared one, which a call may not exceed. */
export function largestBudget({ max_tokens }: ContextListing): number {
  return max_tokens ?? UNLIMITED_TOKENS;
}

export function longestSla({ freshness_sla_ms }: ContextListing): number {
  return Math.max(freshness_sla_ms ?? UNLIMITED_MS, SHORTEST_MS);
}

export function budgetAt(place: number, largest: number): number | null {
  if (place >= PLACES) return null;
  return Math.max(1, Math.round((largest * place) / PLACES));
}

export function placeOfBudget(budget: number | null, largest: number): number {
  return budget === null ? PLACES : clamped(Math.round((budget / largest) * PLACES));
}

/** Return the SLA of a place, on a logarithmic scale from a second on, in round numbers. */
export function slaAt(place: number, longest: number): number | null {
  if (place >= PLACES) return null;
  return rounded(SHORTEST_MS * (longest / SHORTEST_MS) ** (place / PLACES));
}

export function placeOfSla(ms: number | null, longest: number): number {
  if (ms === null || longest <= SHORTEST_MS) return PLACES;
  const share = Math.log(Math.max(ms, SHORTEST_MS) / SHORTEST_MS) / Math.log(longest / SHORTEST_MS);
  return clamped(Math.round(share * PLACES));
}

function clamped(place: number): number {
  return Math.min(PLACES - 1, Math.max(0, place));
}

/** Return a duration as people say it: whole seconds, minutes or hours. */
function rounded(ms: number): number {
  const unit = ms < 60_000 ? 1_000 : ms < 3_600_000 ? 60_000 : 3_600_000;
  return Math.max(1, Math.floor(ms / unit)) * unit;
}

/** Return a duration as the API writes it. */
export function durationText(ms: number): string {
  return ms % 1_000 === 0 ? `${ms / 1_000}s` : `${ms}ms`;
}

/** Return a positive number of a query string; null for anything else. */
export function positive(text: string | null): number | null {
  const number = Number(text ?? Number.NaN);
  return Number.isFinite(number) && number >= 1 ? Math.round(number) : null;
}
