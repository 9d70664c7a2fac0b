/** Why a context was not fresh, in words, and the pages that help. Pure. */
import type { Schema } from "~/api/client";
import { duration } from "~/design/format";

import { historyOf, retrieverOf } from "./links";
import { valuesOf, type Trace } from "./model";

type Violation = Schema<"FreshnessViolation">;

export type Reason = {
  name: string;
  /** The entity of a value; null where it has none, or the record withholds it. */
  whose: string | null;
  /** What was wrong with it: `was 10 h 27 m old, SLA 5 h`. */
  words: string;
  /** The feature that was computed from the value. */
  usedBy: string | null;
  href: string | null;
};

export function reasonsOf(trace: Trace): Reason[] {
  return trace.freshness_violations.map((violation) => ({
    name: violation.name,
    whose: violation.entity_id,
    words: wordsOf(trace, violation),
    usedBy: violation.used_by,
    href: helpOf(trace, violation),
  }));
}

function wordsOf(trace: Trace, violation: Violation): string {
  const { kind, name, age_ms: age, sla_ms: sla, reason } = violation;
  const limit = sla > 0 ? `, SLA ${duration(sla)}` : "";
  if (reason === "stale" && age !== null) return `was ${duration(age)} old${limit}`;
  if (reason === "default") return `was only a default${limit}`;
  if (reason === "never_ran") return `was a default, and no run has shown it to be true${limit}`;
  if (reason === "dead_letter") return "lacked an event that is a dead letter";
  if (reason === "lost") return "had lost its data";
  if (kind === "context") return `read something without a known age, or its search failed${limit}`;
  if (kind === "retrieval") {
    const isFailed = trace.retrievers.some((each) => each.retriever === name && each.failed);
    return isFailed ? "failed to search" : `found results without a known age${limit}`;
  }
  return `had no value${limit}`;
}

function helpOf(trace: Trace, violation: Violation): string | null {
  const { kind, name } = violation;
  if (kind === "retrieval") return retrieverOf(name);
  if (kind === "context") return innerOf(trace, violation);
  if (kind === "store") return "/doctor";
  const values = trace.features.flatMap((_, read) => valuesOf(trace, read));
  const found = values.find(
    ({ value }) => value.feature === name && value.entity_id === violation.entity_id,
  );
  return found === undefined ? null : historyOf(found.value, trace.created_at);
}

/** The record of an inner context. Violations name contexts only: where several have the name, they
 * are told apart by their order, as long as there is one violation for each. */
function innerOf(trace: Trace, violation: Violation): string | null {
  const all = trace.contexts.filter(({ name }) => name === violation.name);
  const late = all.filter(({ freshness_status: status }) => status !== "guaranteed");
  const named = trace.freshness_violations.filter(
    ({ kind, name }) => kind === "context" && name === violation.name,
  );
  const those = [late, all].find(({ length }) => length === named.length);
  const inner = those?.[named.indexOf(violation)];
  return inner === undefined ? null : `/records/${inner.context_id}`;
}
