import type { Call } from "~/design";
import type { paths } from "@client/schema";

/** The filters of lists of contexts. They live in the query string under the names of the API. */

export const PROVENANCE = ["feature", "entity", "entity_id", "chunk", "document", "index"] as const;
/** What an outcome of a context must match, each by one of them. */
export const OUTCOMES = ["score", "label", "answer_model", "error"] as const;
const COLUMNS = ["name", "caller", "prefix"] as const;
export const STATUSES = ["guaranteed", "degraded", "refused"] as const;

export type Status = (typeof STATUSES)[number];
export type Provenance = (typeof PROVENANCE)[number];

export const RANGES = [
  ["1h", "Last hour", 3_600_000],
  ["24h", "Last 24 hours", 86_400_000],
  ["7d", "Last 7 days", 7 * 86_400_000],
  ["30d", "Last 30 days", 30 * 86_400_000],
  ["all", "All time", null],
] as const;
export type Range = (typeof RANGES)[number][0];

type Text = Provenance | (typeof OUTCOMES)[number] | (typeof COLUMNS)[number];
export type Filters = Partial<Record<Text, string>> & {
  freshness_status?: Status;
  /** An exact time range; without one, `range` counts. */
  start?: string;
  end?: string;
  range: Range;
};

/**
 * Changes some filters in the query string; undefined removes one. Every change is a step that Back
 * undoes, unless it replaces the last one: a text that is being typed does.
 */
export type Change = (
  changes: Partial<Record<keyof Filters, string | undefined>>,
  options?: { replace: boolean },
) => void;

export type ListQuery = NonNullable<paths["/v1/contexts/by-time"]["get"]["parameters"]["query"]>;

/** Read the filters from a query string; what is not valid is left out. */
export function filtersOf(params: URLSearchParams, usual: Range): Filters {
  const filters: Filters = { range: usual };
  for (const name of [...PROVENANCE, ...OUTCOMES, ...COLUMNS]) {
    const text = params.get(name)?.trim();
    if (text && problemOf(name, text) === null) filters[name] = text;
  }
  const status = params.get("freshness_status");
  if (isStatus(status)) filters.freshness_status = status;
  for (const name of ["start", "end"] as const) {
    const time = Date.parse(params.get(name) ?? "");
    if (!Number.isNaN(time)) filters[name] = new Date(time).toISOString();
  }
  const range = RANGES.find(([key]) => key === params.get("range"));
  if (range) filters.range = range[0];
  return filters;
}

/** A name, alone or compared with a number or a flag. */
const SCORE = /^[^<>=!]+(?:(?:[<>]=?|!?=)\s*[-+]?\d*\.?\d+(?:e[-+]?\d+)?|=\s*(?:true|false))?$/i;
/** A label, alone or after the name of its score. */
const LABEL = /^[^=]+(?:=.+)?$/;

/** Return why a text cannot be a filter, or null if it can. A text that is being typed passes through
 * states that the server refuses. */
export function problemOf(name: Text, text: string): string | null {
  if (name === "score" && !SCORE.test(text)) return "Such as helpful<3 or helpful=false";
  if (name === "label" && !LABEL.test(text)) return "Such as rude or tone=rude";
  return null;
}

/** Return whether contexts are sought by what became of them. */
export function hasOutcomes(filters: Filters): boolean {
  return OUTCOMES.some((name) => filters[name] !== undefined);
}

/** Return a query string with some parameters changed; undefined removes one. */
export function changed(params: URLSearchParams, changes: Parameters<Change>[0]): URLSearchParams {
  const next = new URLSearchParams(params);
  for (const [name, value] of Object.entries(changes)) {
    if (!value) next.delete(name);
    else next.set(name, value);
  }
  return next;
}

/** Return the query of the API; a range such as `7d` ends at `now`. */
export function queryOf({ range, ...rest }: Filters, now: number): ListQuery {
  if (rest.start !== undefined || rest.end !== undefined) return rest;
  const length = RANGES.find(([key]) => key === range)?.[2] ?? null;
  return length === null ? rest : { ...rest, start: new Date(now - length).toISOString() };
}

/** Return whether contexts are sought by what they read. */
export function hasProvenance(query: ListQuery): boolean {
  return PROVENANCE.some((name) => query[name] !== undefined);
}

/** Return whether anything besides time narrows the list. */
export function isNarrowed(filters: Filters): boolean {
  return [...PROVENANCE, ...OUTCOMES, ...COLUMNS, "freshness_status" as const].some(
    (name) => filters[name] !== undefined,
  );
}

const IN_FIND: readonly string[] = [...PROVENANCE, ...OUTCOMES];

/** Return a list as a request, a command and an expression. */
export function callOf(query: ListQuery): Call {
  const entries = Object.entries(query).map(([name, value]) => [name, String(value)] as const);
  const search = new URLSearchParams(entries.map(([name, value]) => [name, value])).toString();
  const sought = hasProvenance(query);
  const path = sought ? "/v1/contexts/by-provenance" : "/v1/contexts";
  const options = entries.flatMap(([name, value]) => {
    const option = { start: "since", end: "before" }[name] ?? name.replace("_", "-");
    return [`--${option}`, value];
  });
  const inCommand = sought
    ? entries.every(([name]) => IN_FIND.includes(name))
    : query.prefix === undefined;
  const named = entries.map(([name, value]) =>
    name === "start" || name === "end"
      ? `${name}=datetime.fromisoformat(${JSON.stringify(value)})`
      : `${name}=${JSON.stringify(value)}`,
  );
  return {
    path: search ? `${path}?${search}` : path,
    cli: inCommand ? ["context", sought ? "find" : "list", ...options] : null,
    python: `${sought ? "records.find" : "list_contexts"}(${named.join(", ")})`,
    imports: query.start || query.end ? ["from datetime import datetime"] : [],
  };
}

function isStatus(text: string | null): text is Status {
  return (STATUSES as readonly (string | null)[]).includes(text);
}
