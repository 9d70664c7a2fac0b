/** The records inside a bundle, which is a zip file. Needs only what the browser has. */

/** A file that cannot be read as a bundle; the message says why and what to do. */
export class BundleError extends Error {}

type Entry = { name: string; text: string };

/** Bytes of text that one bundle may expand to: a hostile one would fill the memory. */
export const MOST_BYTES = 64 * 1024 * 1024;

const END = 0x06054b50;
const ENTRY = 0x02014b50;
const STORED = 0;
const DEFLATED = 8;
const MOST_ENTRIES = 10_000;

export function isZip(bytes: Uint8Array): boolean {
  return bytes[0] === 0x50 && bytes[1] === 0x4b && (bytes[2] === 3 || bytes[2] === 5);
}

/** Return the records of a bundle: `record.json` and the ones of its inner contexts. */
export async function recordsIn(bytes: Uint8Array): Promise<Entry[]> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const records: Entry[] = [];
  let left = MOST_BYTES;
  try {
    for (const { name, method, start, packed } of entries(view)) {
      if (name !== "record.json" && !/^inner\/[^/]+\.json$/.test(name)) continue;
      const inflated = await inflate(bytes.subarray(start, start + packed), method, left);
      left -= inflated.length;
      records.push({ name, text: new TextDecoder("utf-8", { fatal: true }).decode(inflated) });
    }
  } catch (error) {
    if (error instanceof BundleError) throw error;
    throw new BundleError("It is a zip file that is damaged. Export the bundle again.");
  }
  if (records.length === 0) {
    throw new BundleError(
      "It is a zip file without a record.json. Drop a bundle of `headwater context export --bundle`.",
    );
  }
  return records;
}

type Packed = { name: string; method: number; start: number; packed: number };

/** Yield the entries of the central directory; reads outside of the file raise RangeError. */
function* entries(view: DataView): Generator<Packed> {
  const end = endOf(view);
  const count = Math.min(view.getUint16(end + 10, true), MOST_ENTRIES);
  let at = view.getUint32(end + 16, true);
  for (let index = 0; index < count; index += 1) {
    if (view.getUint32(at, true) !== ENTRY) throw new RangeError("not an entry");
    const nameLength = view.getUint16(at + 28, true);
    const rest = view.getUint16(at + 30, true) + view.getUint16(at + 32, true);
    const local = view.getUint32(at + 42, true);
    const name = new TextDecoder().decode(
      new Uint8Array(view.buffer, view.byteOffset + at + 46, nameLength),
    );
    const skipped = view.getUint16(local + 26, true) + view.getUint16(local + 28, true);
    yield {
      name,
      method: view.getUint16(at + 10, true),
      start: local + 30 + skipped,
      packed: view.getUint32(at + 20, true),
    };
    at += 46 + nameLength + rest;
  }
}

/** Return the place of the last record of the file, which a comment may follow. */
function endOf(view: DataView): number {
  const first = Math.max(0, view.byteLength - 22 - 65_535);
  for (let at = view.byteLength - 22; at >= first; at -= 1) {
    if (view.getUint32(at, true) === END) return at;
  }
  throw new RangeError("no end");
}

async function inflate(packed: Uint8Array, method: number, most: number): Promise<Uint8Array> {
  if (method === STORED) return packed;
  if (method !== DEFLATED)
    throw new BundleError("It is packed in a way that browsers cannot read.");
  const stream = new Blob([packed as Uint8Array<ArrayBuffer>])
    .stream()
    .pipeThrough(new DecompressionStream("deflate-raw"));
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let size = 0;
  const reader = stream.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.length;
    if (size > most) {
      await reader.cancel();
      throw new BundleError(`It expands to more than ${MOST_BYTES / 1024 / 1024} MB.`);
    }
    parts.push(value);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}
