// Runs every published vector: node --test test.mjs

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { test } from "node:test";

import { canonical, DocumentError, parse, verdict, verify } from "./verify.mjs";

const read = (path) => readFile(new URL(`vectors/${path}`, import.meta.url), "utf8");
const vectors = async (name) => JSON.parse(await read(`${name}.json`));
const sha256 = (text) => createHash("sha256").update(text).digest("hex");

const results = ({ checks }) => Object.fromEntries(checks.map(({ check, ok }) => [check, ok]));

function named({ checks }, { names }) {
  for (const { check, detail } of checks) {
    for (const name of names[check] ?? []) assert.ok(detail.includes(name), `${detail} names ${name}`);
  }
}

for (const { file, what, keys, expect, signed, expected } of await vectors("records")) {
  test(`${file}: ${what}`, async () => {
    const options = { keys, expect, signed };
    if (!expected) {
      await assert.rejects(verify(await read(file), options), DocumentError);
      return;
    }
    const report = await verify(await read(file), options);
    assert.deepEqual(results(report), expected.checks);
    assert.equal(report.ok, expected.ok);
    assert.equal(verdict(report), expected.verdict);
    named(report, expected);
    assert.equal(report.outcomes?.length, expected.outcomes?.length);
    for (const [at, each] of (report.outcomes ?? []).entries()) {
      assert.deepEqual(results(each), expected.outcomes[at].checks);
      named(each, expected.outcomes[at]);
    }
  });
}

for (const version of await readdir(new URL("released/", import.meta.url))) {
  for (const { what, document, keys, expect, signed, expected } of JSON.parse(await read(`../released/${version}`))) {
    test(`released ${version}: ${what}`, async () => {
      const report = await verify(JSON.stringify(document), { keys, expect, signed });
      assert.equal(report.ok, true);
      // Later versions may check more.
      assert.deepEqual({ ...results(report), ...expected.checks }, results(report));
    });
  }
}

const { accepted, refused } = await vectors("canonical");
for (const { what, json, canonical: expected, sha256: hash } of accepted) {
  test(`canonical: ${what}`, () => {
    assert.equal(canonical(parse(json)), expected);
    assert.equal(sha256(expected), hash);
  });
}
for (const { what, json } of refused) test(`refused: ${what}`, () => assert.throws(() => parse(json), SyntaxError));

for (const { what, tagged, canonical: expected, salt, pointer, digest } of await vectors("grammar")) {
  test(`grammar: ${what}`, () => {
    const value = parse(JSON.stringify(tagged));
    assert.equal(canonical(value), expected);
    assert.equal(sha256(canonical([salt, pointer, value])), digest);
  });
}
