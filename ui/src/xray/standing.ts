/** What a verification proves, as the badge of a record says it. Pure. */
import type { Report } from "@verifier/verify.mjs";
import type { State } from "~/design";

export type Standing = {
  state: State;
  badge: string;
  /** What the verdict leaves open, and how to settle it; null if it is final. */
  open: string | null;
};

const BROKEN: Standing = { state: "failed", badge: "broken", open: null };
const VERIFIED: Standing = { state: "fresh", badge: "verified", open: null };
const UNCHECKED: Standing = {
  state: "unknown",
  badge: "intact, signature not checked",
  open: "Nothing here proves who made it, until its signature is checked with the public key.",
};
const UNSIGNED: Standing = {
  state: "unknown",
  badge: "intact, not signed",
  open: "Nothing here proves who made it: a changed record with a new hash looks the same.",
};

const SIGNATURE_MISSING: Standing = {
  state: "failed",
  badge: "not signed",
  open: "Keys were given, so a signature is expected: it may have been removed to hide a change.",
};

/** Return the standing of a record: only a signature that was checked makes it verified. */
export function standingOf({ ok, signed, checks }: Report, keys: string): Standing {
  if (!ok) return BROKEN;
  if (checks.some(({ check, ok }) => check === "signature" && ok === true)) return VERIFIED;
  if (signed) return UNCHECKED;
  return keys.trim() === "" ? UNSIGNED : SIGNATURE_MISSING;
}
