/** Redactions, as the document of a record notes them. */
import { useQuery } from "@tanstack/react-query";

import type { Schema } from "~/api/client";

import { recordText } from "./exports";

export type Redaction = Schema<"Redaction">;

/** Return the redactions of a record; none while its document is not read. */
export function useRedactions(contextId: string): readonly Redaction[] {
  return useQuery({ ...recordText(contextId), select: redactionsIn }).data ?? [];
}

function redactionsIn(text: string): readonly Redaction[] {
  try {
    return (JSON.parse(text) as { redactions?: Redaction[] }).redactions ?? [];
  } catch {
    return []; // The verifier says what is wrong with the document.
  }
}

/** Return redactions in groups that were made together. */
export function together(redactions: readonly Redaction[]): Redaction[][] {
  const groups = new Map<string, Redaction[]>();
  for (const redaction of redactions) {
    const { redacted_at: at, by, reason } = redaction;
    const key = JSON.stringify([at, by, reason]);
    groups.set(key, [...(groups.get(key) ?? []), redaction]);
  }
  return [...groups.values()];
}
