/** Files that were dropped on the page, read as documents of records. */
import { BundleError, isZip, MOST_BYTES, recordsIn } from "./unzip";

/** A document to verify, or why the file has none. */
export type Document = { key: string; name: string } & (
  { text: string; size: number } | { problem: string }
);

let read = 0;

/** Return the documents in a file: one, or those of a bundle. */
export async function documentsOf(file: File): Promise<Document[]> {
  const key = String((read += 1));
  const { name } = file;
  if (file.size > MOST_BYTES) {
    const problem = `It has more than ${MOST_BYTES / 1024 / 1024} MB. Verify it with verifier/cli.mjs.`;
    return [{ key, name, problem }];
  }
  try {
    const bytes = new Uint8Array(await file.arrayBuffer());
    if (!isZip(bytes)) return [{ key, name, text: decoded(bytes), size: bytes.length }];
    return (await recordsIn(bytes)).map((entry, index) => ({
      key: `${key}/${index}`,
      name: `${name}: ${entry.name}`,
      text: entry.text,
      size: entry.text.length,
    }));
  } catch (error) {
    return [{ key, name, problem: problemOf(error) }];
  }
}

function decoded(bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new BundleError("It is not text. Drop the JSON document of a record, or a bundle.");
  }
}

function problemOf(error: unknown): string {
  if (error instanceof BundleError) return error.message;
  return "It cannot be read. It may have been moved or deleted since it was chosen.";
}

/** What a document says about itself, for people; nothing here is checked. */
type Claims = {
  contextId: string;
  recordHash: string;
  name: string | null;
  /** How many outcomes the document has; null if it is an outcome itself. */
  outcomes: number | null;
};

export function claimsOf(text: string): Claims | null {
  try {
    const document = JSON.parse(text) as Record<string, unknown>;
    const { context_id: contextId, record_hash: recordHash, core } = document;
    if (typeof contextId !== "string" || typeof recordHash !== "string") return null;
    const name = typeof core === "string" ? nameIn(core) : null;
    const outcomes = Array.isArray(document.outcomes) ? document.outcomes.length : 0;
    return { contextId, recordHash, name, outcomes: "outcome_id" in document ? null : outcomes };
  } catch {
    return null;
  }
}

function nameIn(core: string): string | null {
  try {
    const { context } = JSON.parse(core) as { context?: { name?: unknown } };
    return typeof context?.name === "string" ? context.name : null;
  } catch {
    return null;
  }
}
