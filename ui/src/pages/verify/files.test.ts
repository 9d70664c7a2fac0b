import { deflateRawSync } from "node:zlib";

import { describe, expect, it } from "vitest";

import { claimsOf, documentsOf } from "./files";

/** A zip file as Python's zipfile writes one. */
function zip(files: Record<string, string>): Uint8Array<ArrayBuffer> {
  const parts: Buffer[] = [];
  const directory: Buffer[] = [];
  let at = 0;
  for (const [name, text] of Object.entries(files)) {
    const packed = deflateRawSync(Buffer.from(text));
    const local = Buffer.alloc(30);
    local.writeUInt32LE(0x04034b50, 0);
    local.writeUInt16LE(8, 8);
    local.writeUInt32LE(packed.length, 18);
    local.writeUInt16LE(name.length, 26);
    const entry = Buffer.alloc(46);
    entry.writeUInt32LE(0x02014b50, 0);
    entry.writeUInt16LE(8, 10);
    entry.writeUInt32LE(packed.length, 20);
    entry.writeUInt16LE(name.length, 28);
    entry.writeUInt32LE(at, 42);
    directory.push(entry, Buffer.from(name));
    parts.push(local, Buffer.from(name), packed);
    at += 30 + name.length + packed.length;
  }
  const size = directory.reduce((sum, each) => sum + each.length, 0);
  const end = Buffer.alloc(22);
  end.writeUInt32LE(0x06054b50, 0);
  end.writeUInt16LE(Object.keys(files).length, 10);
  end.writeUInt32LE(size, 12);
  end.writeUInt32LE(at, 16);
  return new Uint8Array(Buffer.concat([...parts, ...directory, end]));
}

const file = (content: BlobPart, name = "a.json") => new File([content], name);

describe("documentsOf", () => {
  it("reads a document and the records of a bundle", async () => {
    expect(await documentsOf(file("{}"))).toMatchObject([{ name: "a.json", text: "{}" }]);
    const bundle = zip({ "README.md": "x", "record.json": "{1}", "inner/b.json": "{2}" });
    expect(await documentsOf(file(bundle, "b.zip"))).toMatchObject([
      { name: "b.zip: record.json", text: "{1}" },
      { name: "b.zip: inner/b.json", text: "{2}" },
    ]);
  });

  it.each([
    ["not text", new Uint8Array([0xff, 0xfe, 0x00])],
    ["without a record.json", zip({ "a.txt": "x" })],
    ["damaged", zip({ "record.json": "x".repeat(500) }).slice(0, 60)],
    ["damaged", zip({ "record.json": "y" }).map((byte, at) => (at > 40 && at < 45 ? 0xff : byte))],
  ])("says that a file is %s", async (words, bytes) => {
    const [found] = await documentsOf(file(bytes));
    expect(found && "problem" in found && found.problem).toContain(words);
  });

  it("stops at a bundle that expands without end", async () => {
    const [found] = await documentsOf(file(zip({ "record.json": "0".repeat(65 * 1024 * 1024) })));
    expect(found && "problem" in found && found.problem).toContain("more than 64 MB");
  });
});

it("reads what a document says about itself, and nothing from others", () => {
  const core = JSON.stringify({ context: { name: "support" } });
  const text = JSON.stringify({ context_id: "1", record_hash: "2", core });
  const claims = { contextId: "1", recordHash: "2", name: "support", outcomes: 0 };
  expect(claimsOf(text)).toEqual(claims);
  const whole = JSON.parse(text) as object;
  expect(claimsOf(JSON.stringify({ ...whole, outcomes: [{}, {}] }))?.outcomes).toBe(2);
  expect(claimsOf(JSON.stringify({ ...whole, outcome_id: "3" }))?.outcomes).toBeNull();
  expect(
    claimsOf(JSON.stringify({ context_id: "1", record_hash: "2", core: "{" }))?.name,
  ).toBeNull();
  for (const other of ["", "[]", "null", "{}", "x"]) expect(claimsOf(other)).toBeNull();
});
