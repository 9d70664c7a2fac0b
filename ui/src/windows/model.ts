/** Windows of time: families and their members, the tiles that a window covers. Pure. */
import type { Schema } from "~/api/client";
import { duration, inline } from "~/design/format";

export type Feature = Schema<"FeatureListing">;
export type Member = Schema<"MemberListing">;
export type Family = Schema<"FamilyListing">;
/** The contributions of one hop; the schema does not know the types of its aggregates. */
export type Tile = Omit<Schema<"WindowTile">, "values"> & { values: Record<string, unknown> };

/** A family with the names of its members by aggregate and window. */
export type FamilyGrid = {
  name: string;
  family: Family;
  /** The feature of an aggregate and a window. */
  memberAt: (aggregate: string, window: string) => string | null;
};

/** Return the families among some features, in the order of their declaration. */
export function gridsOf(features: readonly Feature[]): FamilyGrid[] {
  const members = new Map<string, string>();
  for (const { name, window } of features) {
    if (window !== null) members.set(key(window.family, window.aggregate, window.window), name);
  }
  return features.flatMap(({ name, windows }) =>
    windows === null
      ? []
      : {
          name,
          family: windows,
          memberAt: (aggregate, window) => members.get(key(name, aggregate, window)) ?? null,
        },
  );
}

const key = (...parts: readonly string[]) => JSON.stringify(parts);

type Moving = Pick<Member, "span_us" | "hop_us">;

export const spanMs = ({ span_us }: Moving): number => span_us / 1_000;
export const hopMs = ({ hop_us }: Moving): number => hop_us / 1_000;

/** Return the moment at which the first tile begins that a window covers at a moment. */
export function coveredSince(window: Moving, at: number): number {
  return Math.floor((at - spanMs(window)) / hopMs(window)) * hopMs(window);
}

/** Return a window in words: `24h, moves every 1 h`. */
export function windowWords(window: Moving & Pick<Member, "window">): string {
  return `${window.window}, moves every ${duration(hopMs(window))}`;
}

/** Return how much time a window covers, in words: `between 7 d and 7 d 6 h`. */
export function coverageWords(window: Moving): string {
  const [least, most] = [spanMs(window), spanMs(window) + hopMs(window)];
  return `between ${duration(least)} and ${duration(most)}`;
}

/** Return how exact the values of a member are, in words. */
export function accuracyWords({ error }: Pick<Member, "error">): string {
  return error === null ? "exact" : `computed of a sketch; error ${error}`;
}

/** The tile that leaves a window next, and the moment at which it does. */
export type Leaving = { tile: Tile; at: number };

/** Return the oldest tile that a window covers at a moment; null if it covers none. */
export function nextToLeave(window: Moving, tiles: readonly Tile[], at: number): Leaving | null {
  const since = coveredSince(window, at);
  const tile = tiles.find(({ start }) => Date.parse(start) >= since);
  return tile === undefined ? null : { tile, at: Date.parse(tile.end) + spanMs(window) };
}

const ADDED = new Set(["count", "sum", "rate"]);

/** Return the number that a chart draws: the value, of keys their sum; null where there is none. */
export function drawn(value: unknown, aggregate: string): number | null {
  if (typeof value === "number") return value;
  if (!ADDED.has(aggregate) || typeof value !== "object" || value === null) return null;
  const parts = Object.values(value);
  return parts.every((part) => typeof part === "number")
    ? parts.reduce((sum, part) => sum + part, 0)
    : null;
}

const NUMBER = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 });
const SMALL = 0.001;

/** Return a value as short as a cell of a table needs it. */
export function cellText(value: unknown, most = 20): string {
  if (typeof value === "number") {
    const isSmall = value !== 0 && Math.abs(value) < SMALL;
    return isSmall ? value.toExponential(2) : NUMBER.format(value);
  }
  // A tile has no last values, and one contribution has no deviation.
  if (value === undefined || value === null) return "–";
  const text = inline(value).replaceAll(/\s+/g, " ");
  return text.length > most ? `${text.slice(0, most)}…` : text;
}

/** Return the value of a keyed member on one line: `books 12, games 3`. */
export function keyedText(value: unknown): string {
  return keyed(value)
    .map(([name, each]) => `${name} ${cellText(each)}`)
    .join(", ");
}

/** Return the keys and values of a keyed member, the greatest first and the rest of the keys last. */
export function keyed(value: unknown): [key: string, value: unknown][] {
  if (typeof value !== "object" || value === null) return [];
  const size = (of: unknown) => (typeof of === "number" ? of : 0);
  return Object.entries(value).sort(([one, first], [two, second]) => {
    if ((one === OTHER) !== (two === OTHER)) return one === OTHER ? 1 : -1;
    return size(second) - size(first) || one.localeCompare(two);
  });
}

/** The key of what is not kept apart. */
export const OTHER = "other";
