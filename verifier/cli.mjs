#!/usr/bin/env node
// node cli.mjs FILE.json [--key KEY]... [--key-file FILE] [--expect REF] [--signed | --unsigned] [--json]
//
// Exit codes: 0 if no check fails, 1 if one does, 2 if the file could not be checked.

import { readFile } from "node:fs/promises";
import { parseArgs } from "node:util";

import { verdict, verify } from "./verify.mjs";

const USAGE = "usage: node cli.mjs FILE.json [--key KEY]... [--key-file FILE] [--expect REF] [--signed | --unsigned] [--json]";
const MARKS = new Map([[true, "ok     "], [false, "BROKEN "], [null, "-      "]]);

async function main(argv) {
  const { values, positionals } = parseArgs({
    args: argv,
    allowPositionals: true,
    options: {
      key: { type: "string", multiple: true },
      "key-file": { type: "string" },
      expect: { type: "string" },
      signed: { type: "boolean" },
      unsigned: { type: "boolean" },
      json: { type: "boolean" },
    },
  });
  if (positionals.length !== 1) throw new Error(USAGE);
  if (values.signed && values.unsigned) throw new Error("cannot combine --signed with --unsigned; pass one of them");
  const keys = values.key ?? [];
  if (values["key-file"]) keys.push((await text(values["key-file"])).trim());
  const signed = values.signed ?? (values.unsigned ? false : null);
  const options = { keys: keys.join("\n"), expect: values.expect, signed };
  const report = await verify(await text(positionals[0]), options);
  console.log(values.json ? JSON.stringify(report, null, 2) : shown(report));
  return report.ok ? 0 : 1;
}

const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const text = async (file) => strict.decode(await readFile(file));

const rows = ({ checks }) => checks.map(({ check, ok, detail }) => `${MARKS.get(ok)}${check.padEnd(13)}${detail}`);

function shown(report) {
  const outcomes = (report.outcomes ?? []).flatMap((each) => [`outcome ${each.outcome_id}`, ...rows(each)]);
  return [...rows(report), ...outcomes, verdict(report)].join("\n");
}

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  console.error(error.message);
  process.exitCode = 2;
}
