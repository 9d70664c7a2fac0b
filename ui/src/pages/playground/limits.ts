import type { Schema } from "~/api/client";

/** The limits that a run may tighten: from a slider's place to what the API takes. Pure. */

export type ContextListing = Schema<"ContextListing">;

/** Limits of one run; null keeps the declared one. */
export type Limits = { maxTokens: number | null; slaMs: number | null };

/** The places of a slider: from `min` to `max` in steps; the last one is the declared limit. */
export type Places = { min: number; max: number; step: number };

const UNLIMITED_TOKENS = 4_000;
const UNLIMITED_MS = 24 * 3_600_000;
const MOST_STEPS = 200;
const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const STOPS = [
  ...[1, 2, 5, 10, 15, 30].map((each) => each * SECOND),
  ...[1, 2, 5, 10, 15, 30].map((each) => each * MINUTE),
  ...[1, 2, 6, 12].map((each) => each * HOUR),
  ...[1, 2, 7, 14, 30, 90, 365].map((each) => each * DAY),
];

/** Return the largest budget of the slider: the declared one, which a call may not exceed. */
export function largestBudget({ max_tokens }: ContextListing): number {
  return max_tokens ?? UNLIMITED_TOKENS;
}

export function longestSla({ freshness_sla_ms }: ContextListing): number {
  return freshness_sla_ms ?? UNLIMITED_MS;
}

/** Return the places of the budget: single tokens, or larger steps that end at the largest. */
export function budgetPlaces(largest: number): Places {
  const step = Math.ceil(largest / MOST_STEPS);
  return { min: largest - step * Math.floor((largest - 1) / step), max: largest, step };
}

/** Return the round durations below the declared one, which stands behind the last of them. */
export function slaStops(longest: number): number[] {
  return STOPS.filter((stop) => stop < longest);
}

export function placeOfSla(ms: number | null, stops: readonly number[]): number {
  if (ms === null) return stops.length;
  const place = stops.findIndex((stop) => stop >= ms);
  return place < 0 ? Math.max(stops.length - 1, 0) : place;
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
