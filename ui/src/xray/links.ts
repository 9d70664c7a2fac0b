/** Addresses of other pages that show more about a value or a chunk. */
import type { Value } from "./model";

/** The history of a value, and what it was when a record was made; null where the record withholds
 * whose it is. A value may have been written while the context was assembled. */
export function historyOf(value: Value, recordedAt: string): string | null {
  const { feature, entity, entity_id: id, written_at: written } = value;
  if (id === null) return null;
  const isLater = written !== null && Date.parse(written) > Date.parse(recordedAt);
  return `/lookup?${query({ entity, id, feature, at: isLater ? written : recordedAt })}`;
}

/** A retriever, to try its query. */
export function retrieverOf(name: string): string {
  return `/retrievers?${query({ retriever: name })}`;
}

/** One event, among all that were accepted. */
export function eventOf(id: string): string {
  return `/events?${query({ view: "past", range: "all", event: id })}`;
}

type Sought = {
  feature?: string;
  entity?: string;
  entity_id?: string | null;
  chunk?: unknown;
  document?: string | null;
  index?: string | null;
};

/** The contexts that used the same value, document or chunk. */
export function impactOf(sought: Sought): string | null {
  const { feature, entity, entity_id: entityId, chunk, document, index } = sought;
  if (typeof document === "string" && typeof index === "string") {
    return `/impact?${query({ document, index })}`;
  }
  if (typeof chunk === "string") return `/impact?${query({ chunk })}`;
  if (feature === undefined || entityId === null) return null;
  return `/impact?${query({ feature, entity, entity_id: entityId })}`;
}

function query(values: Record<string, string | undefined>): string {
  const given = Object.entries(values).filter(
    (pair): pair is [string, string] => pair[1] !== undefined,
  );
  return new URLSearchParams(given).toString();
}
