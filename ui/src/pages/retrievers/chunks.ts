import type { Schema } from "~/api/client";

export type Hit = Schema<"SearchHit">;
export type Index = Schema<"IndexStatus">;
type Spec = Schema<"IndexSpec">;

/** The ways to search an index, and the words for them. */
export const MODES = [
  ["vector", "by meaning"],
  ["text", "by words"],
  ["hybrid", "by meaning and words"],
] as const;

export function modeWords(mode: string | null): string {
  return MODES.find(([each]) => each === mode)?.[1] ?? "";
}

/**
 * Return how wide the bar of a score is, from 0 to 1, or null for none: only a search by meaning has
 * scores on a fixed scale, on which 1 is the same meaning.
 */
export function shareOf(score: number, mode: string | null): number | null {
  return mode === "vector" ? Math.min(1, Math.max(0, score)) : null;
}

/** Return how the declaration of an index differs from the way it was built. */
export function differences({ spec, declared_spec }: Index): string[] {
  if (spec === null || declared_spec === null) return [];
  return (Object.keys(declared_spec) as (keyof Spec)[])
    .filter((name) => spec[name] !== declared_spec[name])
    .map(
      (name) =>
        `${name.replaceAll("_", " ")}: built ${spec[name]}, declared ${declared_spec[name]}`,
    );
}

/** Return the words that filters stand for, one condition each: `lang = en`. */
export function conditions(filters: Readonly<Record<string, unknown>> | null): string[] {
  if (filters === null) return [];
  return Object.entries(filters).map(([name, value]) =>
    typeof value === "object" && value !== null
      ? `${name}: ${JSON.stringify(value)}`
      : `${name} = ${String(value)}`,
  );
}
