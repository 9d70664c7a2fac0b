/** Addresses of other pages that show more about a value or a chunk. */
import type { Value } from "./model";

/** The history of a value; null where the record withholds whose it is. */
export function historyOf({ feature, entity, entity_id: id }: Value): string | null {
  return id === null ? null : `/lookup?${query({ entity, id, feature })}`;
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
