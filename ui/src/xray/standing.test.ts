import { readFileSync } from "node:fs";

import { expect, it } from "vitest";

import { verify } from "@verifier/verify.mjs";

import { standingOf } from "./standing";

const SECRET = "2026-01:correct horse battery staple";
const PUBLIC = "ed25519-pub:auditors:A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=";
const UNCHECKED = "intact, signature not checked";
const UNSIGNED = "intact, not signed";

it.each([
  ["signed-ed25519", PUBLIC, "verified"],
  ["signed-hmac", SECRET, "verified"],
  ["private-after-redaction", SECRET, "verified"],
  ["signed-ed25519", "", UNCHECKED],
  ["signed-ed25519", SECRET, UNCHECKED],
  ["signature-made-up", "", UNCHECKED],
  ["signature-made-up-known-keys", SECRET, UNCHECKED],
  ["signature-removed", "", UNSIGNED],
  ["signature-removed-known-keys", SECRET, "not signed"],
  ["core-rehashed", "", "broken"],
  ["signature-bytes", SECRET, "broken"],
  ["signature-of-another-unchecked", "", "broken"],
  ["core-key", "", "broken"],
])("calls %s, checked with %j, %s", async (name, keys, badge) => {
  const text = readFileSync(`../verifier/vectors/records/${name}.json`, "utf8");
  const standing = standingOf(await verify(text, { keys, signed: false }), keys);
  expect(standing.badge).toBe(badge);
  const states: Record<string, string> = {
    verified: "fresh",
    broken: "failed",
    "not signed": "failed",
  };
  expect(standing.state).toBe(states[badge] ?? "unknown");
});
