// Verifies the document of a CRS-001 record or of an outcome: that it was not changed since it was made.
//
// Runs in Node 18 or later and in browsers; it needs only WebCrypto.

// The names of what is sealed: in its document, its core, its signed statement and its report.
const RECORD = {
  noun: "record",
  described: "a record",
  spec: "CRS-001",
  id: "context_id",
  hash: "record_hash",
  facts: ["context_id", "content_hash"],
};
const OUTCOME = {
  noun: "outcome",
  described: "an outcome",
  spec: "CRS-001-OUTCOME",
  id: "outcome_id",
  hash: "outcome_hash",
  facts: ["outcome_id", "context_id", "record_hash"],
};
const SHORTEST_SECRET = 16;
const DEEPEST = 256;
// Missing values that a report names: their pointers may be as long as the core.
const MOST_NAMED = 20;
// Tolerated difference between the clocks of the recording and the redacting host.
const CLOCKS_DIFFER = 10 * 60 * 1000;

/** The text is not the document of a record. */
export class DocumentError extends Error {}

/**
 * Check a record and its outcomes, or an outcome alone, and name everything that is broken.
 *
 * `keys` are written as in HEADWATER_SIGNING_KEY, separated by commas or line ends; `expect` is the
 * hash or id that the record, or the outcome alone, must have, in any spelling. If `signed` is true, the check
 * fails unless one of the keys made the signature; if it is false, a record without a signature or with
 * one by another key passes. By default it is true if there are keys. A failed check has a `fault`:
 * "altered", or, of a record that may be intact, "another", "unsigned" or "unchecked". The report of an outcome
 * has its `outcome_id`; that of a record with outcomes has their reports as `outcomes`.
 *
 * @returns {Promise<{ok: boolean, signed: boolean, checks: {check: string, ok: boolean|null, detail: string, fault?: string}[], outcome_id?: string, outcomes?: object[]}>}
 */
export async function verify(text, { keys = "", expect = null, signed = null } = {}) {
  const sealed = readDocument(text);
  const keyring = readKeys(keys);
  const required = signed ?? keyring.size > 0;
  if (sealed.form === OUTCOME) return verifyOutcome(sealed, null, keyring, expect, required);
  const core = await readCore(sealed, readOutline);
  const disclosures = await checkDisclosures(sealed, core);
  const report = reportOf(sealed, [
    checkHash(sealed, core, expect),
    await checkSignature(sealed, core, keyring, required),
    disclosures.check,
    await checkContent(sealed, core, disclosures.opened),
    await checkReassembly(sealed, core, disclosures.opened),
  ]);
  if (!sealed.outcomes.length) return report;
  const outcomes = [];
  const record = { hash: core.hash, contextId: sealed.context_id };
  for (const outcome of sealed.outcomes) outcomes.push(await verifyOutcome(outcome, record, keyring, null, required));
  return { ...report, ok: report.ok && outcomes.every(({ ok }) => ok), outcomes };
}

async function verifyOutcome(outcome, record, keyring, expect, required) {
  const core = await readCore(outcome, readOutcomeOutline);
  const checks = [
    checkHash(outcome, core, expect),
    await checkSignature(outcome, core, keyring, required),
    (await checkDisclosures(outcome, core)).check,
    checkLink(core, record),
  ];
  return { ...reportOf(outcome, checks), outcome_id: outcome.outcome_id };
}

const reportOf = (sealed, checks) => ({
  ok: checks.every(({ ok }) => ok !== false),
  signed: Boolean(sealed.signature),
  checks,
});

/** The result of a report, in one or two sentences, and one for each outcome that failed. */
export function verdict(report) {
  const all = [report, ...(report.outcomes ?? [])];
  const failed = all.filter(({ checks }) => checks.some(({ ok }) => ok === false));
  if (failed.length) return failed.map(failure).join(" ");
  const unproved = all.find(({ checks }) => !checks.find(({ check }) => check === "signature").ok);
  return unproved ? `Nothing is broken, but ${caveat(unproved)}.` : "Nothing is broken.";
}

const UNMET = new Map([
  ["another", (noun) => `It is not the ${noun} that was expected.`],
  ["unsigned", () => "It is not signed."],
  ["unchecked", () => "Its signature could not be checked."],
]);

function failure({ checks, outcome_id: outcome }) {
  const faults = new Set(checks.map(({ fault }) => fault).filter(Boolean));
  if ([...faults].some((fault) => !UNMET.has(fault))) {
    return outcome === undefined ? "This record is broken." : `Outcome ${outcome} is broken.`;
  }
  const noun = outcome === undefined ? RECORD.noun : OUTCOME.noun;
  const unmet = [...UNMET].filter(([fault]) => faults.has(fault)).map(([, text]) => text(noun));
  return (outcome === undefined ? unmet : [`Outcome ${outcome}:`, ...unmet]).join(" ");
}

function caveat({ signed, outcome_id: outcome }) {
  if (outcome === undefined) return signed ? "its signature was not checked" : "it is not signed";
  return signed ? `the signature of outcome ${outcome} was not checked` : `outcome ${outcome} is not signed`;
}

const holds = (check, detail) => ({ check, ok: true, detail });
const broken = (check, detail, fault = "altered") => ({ check, ok: false, detail, fault });
const unchecked = (check, detail) => ({ check, ok: null, detail });

// The document

function readDocument(text) {
  let tree;
  try {
    tree = parse(text);
  } catch (error) {
    throw new DocumentError(`this is not the document of a record: ${error.message}`);
  }
  const form = isObject(tree) && tree.get("format") === OUTCOME.spec ? OUTCOME : RECORD;
  const sealed = readSealed(tree, form);
  if (form === OUTCOME) return sealed;
  const { outcomes = [] } = members(tree, "the document", { outcomes: absentOr(Array.isArray) });
  return { ...sealed, outcomes: outcomes.map((each) => readSealed(each, OUTCOME)) };
}

function readSealed(tree, form) {
  const facts = Object.fromEntries([...form.facts, form.hash].map((name) => [name, isText]));
  const document = members(tree, "the document", {
    format: isText,
    ...facts,
    core: isText,
    disclosures: absentOr(Array.isArray),
    signature: optional(isObject),
    redactions: absentOr(Array.isArray),
  });
  if (document.format !== form.spec) {
    throw new DocumentError(`the document's format is '${document.format}', not '${form.spec}'`);
  }
  const disclosure = { pointer: isText, salt: isText, value: (value) => value !== undefined };
  const redaction = { pointer: isText, redacted_at: isText, reason: isText, by: optional(isText) };
  return {
    ...document,
    form,
    disclosures: (document.disclosures ?? []).map((each) => members(each, "a disclosure", disclosure)),
    redactions: (document.redactions ?? []).map((each) => members(each, "a redaction", redaction)),
    signature:
      document.signature && members(document.signature, "the signature", { statement: isText, signature: isText }),
  };
}

const isText = (value) => typeof value === "string";
const isObject = (value) => value instanceof Map;
const absentOr = (test) => (value) => value === undefined || test(value);
const optional = (test) => absentOr((value) => value === null || test(value));

function members(tree, what, tests) {
  if (!isObject(tree)) throw new DocumentError(`${what} is not an object`);
  const found = {};
  for (const [name, test] of Object.entries(tests)) {
    found[name] = tree.get(name);
    if (!test(found[name])) throw new DocumentError(`${what} has no usable '${name}'`);
  }
  return found;
}

// The core

async function readCore({ core: text, form }, outlineOf) {
  const core = { hash: await hashOf(text), outline: null, commitments: new Commitments(null), problem: null };
  let tree;
  try {
    tree = parse(text);
  } catch (error) {
    return { ...core, problem: `the core is not readable: ${error.message}` };
  }
  try {
    core.outline = outlineOf(tree);
  } catch (error) {
    return { ...core, problem: `the core is not that of ${form.described}: ${error.message}` };
  }
  core.commitments = new Commitments(tree);
  if (core.outline.spec !== form.spec) {
    core.problem = `the core says it is '${core.outline.spec}', not '${form.spec}'`;
  } else if (canonical(tree) !== text) {
    core.problem = "the core is not in canonical form";
  }
  return core;
}

function readOutline(tree) {
  const mark = (value) => isObject(value) && isText(value.get("$sd"));
  const core = members(tree, "the core", {
    spec: isText,
    context_id: isText,
    created_at: isText,
    policy: isObject,
    items: Array.isArray,
    output: isObject,
  });
  const contentHash = members(core.output, "output", { content: mark, content_hash: isText }).content_hash;
  return {
    spec: core.spec,
    id: core.context_id,
    madeAt: core.created_at,
    separator: members(core.policy, "policy", { separator: isText }).separator,
    items: core.items.map((item) => readItem(item, mark)),
    contentHash,
    facts: { context_id: core.context_id, content_hash: contentHash },
  };
}

function readOutcomeOutline(tree) {
  const core = members(tree, "the core", {
    spec: isText,
    outcome_id: isText,
    at: isText,
    context_id: isText,
    record_hash: isText,
  });
  return { spec: core.spec, id: core.outcome_id, madeAt: core.at, facts: core };
}

function readItem(tree, mark) {
  const item = members(tree, "an item", {
    content: mark,
    decision: isText,
    emitted: optional(mark),
    message: optional(isObject),
  });
  if (!item.message) return item;
  const kinds = { role: optional(isText), turn: optional(Number.isSafeInteger), data: optional(mark) };
  return { ...item, message: members(item.message, "a message", kinds) };
}

/**
 * The commitments of a core, found in time linear in its size, also in a hostile one. A map of all pointers would not
 * be linear: one long key is part of the pointer of everything below it.
 */
class Commitments {
  constructor(tree) {
    this.tree = tree;
    this.size = 0;
    for (const _ of walk(tree)) this.size += 1;
  }

  /** The commitment at a pointer in the one spelling that records use, or null. */
  find(pointer) {
    const [first, ...steps] = pointer.split("/");
    let node = first ? null : this.tree;
    for (const step of steps) node = isCommitment(node) ? null : member(node, step);
    return isCommitment(node) ? node : null;
  }

  /** The number of commitments at which none of these pointers points, and the pointers of the first ones. */
  without(pointers, most) {
    const named = new Set([...pointers].map((pointer) => this.find(pointer)).filter(Boolean));
    const first = [];
    if (named.size < this.size) {
      for (const { node, path } of walk(this.tree)) {
        if (first.length === most) break;
        if (!named.has(node)) first.push(pointerOf(path));
      }
    }
    return { size: this.size - named.size, first };
  }
}

const isCommitment = (node) => isObject(node) && node.size === 1 && node.has("$sd");

function member(node, step) {
  if (isObject(node)) {
    const key = step.replaceAll("~1", "/").replaceAll("~0", "~");
    return escapeKey(key) === step ? node.get(key) : null;
  }
  return Array.isArray(node) && /^(0|[1-9][0-9]{0,15})$/.test(step) ? node[Number(step)] : null;
}

/** Every commitment with its path: the last step, and the path above it. */
function* walk(tree) {
  const waiting = [{ node: tree, path: null }];
  while (waiting.length) {
    const { node, path } = waiting.pop();
    if (isCommitment(node)) yield { node, path };
    else if (isObject(node) || Array.isArray(node)) {
      const members = [...node.entries()].reverse();
      for (const [step, item] of members) waiting.push({ node: item, path: { step, above: path } });
    }
  }
}

function pointerOf(path) {
  const steps = [];
  for (let at = path; at; at = at.above) steps.push(`/${escapeKey(String(at.step))}`);
  return steps.reverse().join("");
}

const escapeKey = (key) => key.replaceAll("~", "~0").replaceAll("/", "~1");

// The checks

function checkHash(sealed, core, expect) {
  const { form } = sealed;
  const problems = [];
  if (core.hash !== sealed[form.hash]) {
    problems.push(
      `the core hashes to ${core.hash} and not to ${form.hash} ${sealed[form.hash]}: one of them was altered`,
    );
  }
  if (core.problem) problems.push(core.problem);
  for (const name of core.outline ? form.facts : []) {
    const said = core.outline.facts[name];
    if (said !== sealed[name]) problems.push(`${name} is ${sealed[name]}, but the core says ${said}`);
  }
  const another = isText(expect) && core.outline && ![core.hash, core.outline.id].includes(spelled(expect));
  const all = another ? [...problems, `it is another ${form.noun} than ${expect}`] : problems;
  if (!all.length) return holds("hash", `the core hashes to ${core.hash}`);
  return broken("hash", all.join("; "), problems.length ? "altered" : "another");
}

/** Whether an outcome names the id and the hash of its record. */
function checkLink({ outline }, record) {
  if (!outline) return unchecked("link", "the core cannot be read");
  const { context_id: contextId, record_hash: recordHash } = outline.facts;
  const named = `record ${recordHash} of context ${contextId}`;
  if (!record) return unchecked("link", `it belongs to ${named}, which was not given`);
  return recordHash === record.hash && contextId === record.contextId
    ? holds("link", `it belongs to ${named}`)
    : broken("link", `it belongs to ${named}, not to record ${record.hash} of context ${record.contextId}`);
}

/** A text without the white space around it, as Python's str.strip defines it. */
const trimmed = (text) => text.replace(/^(?:(?!\ufeff)[\s\x1c-\x1f\x85])+|(?:(?!\ufeff)[\s\x1c-\x1f\x85])+$/g, "");

/** A context id or a record hash as records write it; a bare hash gets its prefix. */
function spelled(ref) {
  const plain = trimmed(ref).toLowerCase();
  return /^[0-9a-f-]{64}$/.test(plain) ? `sha256:${plain}` : plain;
}

async function checkSignature({ signature, form }, core, keyring, required) {
  if (!signature) {
    const known = keyring.size ? ", although there are keys to check one" : "";
    return unverified(`the ${form.noun} is not signed${known}`, "unsigned", required);
  }
  let statement;
  try {
    statement = members(parse(signature.statement), "it", {
      spec: isText,
      [form.hash]: isText,
      [form.id]: isText,
      signed_at: isText,
      key_id: isText,
      algorithm: isText,
    });
  } catch (error) {
    return broken("signature", `the signed statement is not readable: ${error.message}`);
  }
  const problem = statementProblem(statement, core, form);
  if (problem) return broken("signature", problem);
  const key = keyring.get(statement.key_id);
  if (!key) return unverified(unknown(statement.key_id, keyring), "unchecked", required);
  return checkKey(statement, signature, key, required);
}

function unknown(keyId, keyring) {
  if (!keyring.size) return `no key was given; it names key '${keyId}'`;
  const known = [...keyring.keys()].map((each) => `'${each}'`).join(", ");
  return `key '${keyId}' is not in the keyring, which has ${known}`;
}

/** A failed check if a signature is required, otherwise an unchecked one. */
const unverified = (detail, fault, required) =>
  required ? broken("signature", detail, fault) : unchecked("signature", detail);

function statementProblem(statement, core, form) {
  const spec = `${form.spec}-SIG`;
  if (statement.spec !== spec) return `the signed statement is '${statement.spec}', not '${spec}'`;
  if (statement[form.hash] !== core.hash) {
    return `it signs ${statement[form.hash]}, but this core hashes to ${core.hash}`;
  }
  if (core.outline && statement[form.id] !== core.outline.id) {
    return `it signs ${form.id} ${statement[form.id]}, not ${core.outline.id}`;
  }
  return null;
}

async function checkKey(statement, { statement: message, signature }, key, required) {
  const { key_id: keyId, algorithm, signed_at: signedAt } = statement;
  if (key.algorithm !== algorithm) {
    return broken("signature", `key '${keyId}' is for ${key.algorithm}, not for '${algorithm}'`);
  }
  let valid;
  try {
    valid = await key.check(encode(message), signature);
  } catch (error) {
    if (error.name !== "NotSupportedError") throw error;
    return unverified(`this browser cannot check ${algorithm}; use Node or another browser`, "unchecked", required);
  }
  return valid
    ? holds("signature", `signed by key '${keyId}' (${algorithm}) at ${signedAt}`)
    : broken(
        "signature",
        `key '${keyId}' did not sign this statement: the signature, or the statement's key id, time or algorithm, was altered`,
      );
}

async function checkDisclosures(record, core) {
  const opened = new Map();
  if (!core.outline) return { opened, check: unchecked("disclosures", "the core cannot be read") };
  const problems = [];
  for (const disclosure of record.disclosures) {
    const problem = await disclosureProblem(disclosure, core.commitments, opened);
    if (problem) problems.push(`${disclosure.pointer} ${problem}`);
    else opened.set(disclosure.pointer, disclosure.value);
  }
  // One by one: as arguments of one call, very many problems would not fit the stack.
  for (const problem of gaps(record, core.commitments)) problems.push(problem);
  for (const problem of invalidNotes(record, core.outline.madeAt)) problems.push(problem);
  return { opened, check: disclosed(record, problems, opened.size, core.commitments.size) };
}

function disclosed(record, problems, opened, of) {
  if (problems.length) return broken("disclosures", problems.join("; "));
  if (of && !record.disclosures.length) return unchecked("disclosures", `a private copy: all ${of} values are withheld`);
  const redacted = record.redactions.map(({ pointer }) => pointer).join(", ");
  const note = redacted ? `; redacted: ${redacted}` : "";
  return holds("disclosures", `${opened} of ${of} values open their commitments${note}`);
}

async function disclosureProblem({ pointer, salt, value }, committed, opened) {
  if (opened.has(pointer)) return "is disclosed twice";
  const commitment = committed.find(pointer);
  if (!commitment) return "is disclosed, but the core commits to nothing there";
  const digest = await sha256(canonical([salt, pointer, value]));
  if (digest === commitment.get("$sd")) return null;
  return "does not open its commitment: its value or salt was altered, or belongs elsewhere";
}

function* gaps(record, committed) {
  const shown = new Set(record.disclosures.map(({ pointer }) => pointer));
  const redacted = new Set(record.redactions.map(({ pointer }) => pointer));
  // A copy without any disclosure is a private one; with some, each gap needs its note.
  if (shown.size) {
    const missing = committed.without(new Set([...shown, ...redacted]), MOST_NAMED);
    for (const pointer of missing.first) yield `${pointer} is missing without a note of its redaction`;
    if (missing.size > MOST_NAMED) {
      yield `${missing.size - MOST_NAMED} more are missing without a note of their redaction`;
    }
  }
  for (const pointer of redacted) {
    if (!committed.find(pointer)) yield `${pointer} is noted as redacted, but the core commits to nothing there`;
    if (shown.has(pointer)) yield `${pointer} is noted as redacted, but is still disclosed`;
  }
}

/** The problems of redaction notes that Headwater cannot have written. */
function* invalidNotes({ redactions, form }, madeAt) {
  const first = earliest(madeAt);
  for (const { pointer, redacted_at: redactedAt, reason } of redactions) {
    const noted = `${pointer} is noted as redacted`;
    if (!isMoment(redactedAt)) yield `${noted} at '${redactedAt}', which is not a valid time`;
    else if (redactedAt < first) yield `${noted} at ${redactedAt}, before the ${form.noun} was made at ${madeAt}`;
    if (/^[ \t\r\n]*$/.test(reason)) yield `${noted} without a reason`;
  }
}

/** The earliest valid time of a redaction, or "" if the time of the core is not valid. */
function earliest(madeAt) {
  if (!isMoment(madeAt)) return "";
  const second = new Date(`${madeAt.slice(0, 19)}Z`).getTime();
  return new Date(second - CLOCKS_DIFFER).toISOString().slice(0, 19) + madeAt.slice(19);
}

/** Whether a text is a time as records write it: RFC 3339, UTC, microseconds. */
function isMoment(text) {
  if (!/^(?!0000)\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/.test(text)) return false;
  const read = new Date(`${text.slice(0, 19)}Z`);
  return !Number.isNaN(read.getTime()) && read.toISOString().startsWith(text.slice(0, 19));
}

/** Why texts at these pointers are unavailable, or "" if all are there. */
function unavailable(record, opened, pointers) {
  const shown = new Set(record.disclosures.map(({ pointer }) => pointer));
  const faults = new Map();
  for (const pointer of pointers.filter((each) => !isText(opened.get(each)))) {
    const unopened = shown.has(pointer) ? "the disclosed value does not open its commitment" : "not disclosed";
    const fault = opened.has(pointer) ? "not a text" : unopened;
    if (!faults.has(fault)) faults.set(fault, []);
    faults.get(fault).push(pointer);
  }
  return [...faults].map(([fault, at]) => `${fault}: ${at.join(", ")}`).join("; ");
}

async function checkContent(record, { outline }, opened) {
  if (!outline) return unchecked("content", "the core cannot be read");
  const missing = unavailable(record, opened, ["/output/content"]);
  if (missing) return unchecked("content", missing);
  const actual = await hashOf(opened.get("/output/content"));
  const expected = outline.contentHash;
  return actual === expected
    ? holds("content", `the text hashes to ${actual}`)
    : broken("content", `/output/content hashes to ${actual}, the core says ${expected}`);
}

async function checkReassembly(record, { outline }, opened) {
  if (!outline) return unchecked("reassembly", "the core cannot be read");
  if (!outline.items.length) return unchecked("reassembly", "the record has no items");
  const pointers = outline.items
    .map((item, at) => ({ item, at }))
    .filter(({ item }) => item.decision !== "dropped")
    .map(({ item, at }) => `/items/${at}/${item.emitted ? "emitted" : "content"}`);
  const missing = unavailable(record, opened, pointers);
  if (missing) return unchecked("reassembly", missing);
  const texts = pointers.map((pointer) => opened.get(pointer));
  if ((await hashOf(assembled(outline, texts))) !== outline.contentHash) {
    return broken("reassembly", "the kept items do not make up the text of content_hash");
  }
  for (const at of outline.items.keys()) {
    const data = opened.get(`/items/${at}/message/data`);
    if (data != null && !(await isImage(data, opened.get(`/items/${at}/content`)))) {
      return broken("reassembly", `the image of item ${at} does not have its recorded hash`);
    }
  }
  return holds("reassembly", `${pointers.length} kept items make up the text`);
}

/** The text that kept items make up: joined, or as the transcript of messages. An empty item adds nothing. */
function assembled({ items, separator }, texts) {
  if (items.every(({ message }) => !message)) return texts.filter(Boolean).join(separator);
  const kept = texts.values();
  const messages = [];
  const tools = { heading: "tools", texts: [] };
  let before = null;
  for (const { decision, message } of items) {
    const role = message ? (message.role ?? null) : "user";
    const turn = message?.turn ?? null;
    if (role !== null && (role !== before?.heading || turn !== before.turn)) {
      messages.push((before = { heading: role, turn, texts: [] }));
    }
    const text = decision === "dropped" ? "" : kept.next().value;
    if (text) (role === null ? tools : before).texts.push(text);
  }
  return [tools, ...messages]
    .filter((message) => message.texts.length)
    .map((message) => `${message.heading}:\n${message.texts.join(separator)}`)
    .join("\n\n");
}

/** Whether an image has the hash that its item names. */
async function isImage(data, descriptor) {
  const encoded = isObject(data) && data.size === 1 ? data.get("$bytes") : null;
  if (!isText(encoded) || !isBase64(encoded)) return false;
  try {
    const fields = parse(descriptor);
    return isObject(fields) && fields.get("digest") === (await hashOf(fromBase64(encoded)));
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof TypeError) return false;
    throw error;
  }
}

// Keys

function readKeys(text) {
  const keyring = new Map();
  const lines = text.split(/[\r\n]+/).filter((line) => trimmed(line));
  for (const part of lines.flatMap((line) => line.split(","))) {
    const [keyId, key] = readKey(trimmed(part));
    if (keyring.has(keyId)) throw new Error(`key '${keyId}' is there twice`);
    keyring.set(keyId, key);
  }
  return keyring;
}

const HOW = "write key_id:secret or ed25519-pub:key_id:<base64>";

function readKey(text) {
  const [kind, ...rest] = text.split(":");
  if (kind === "ed25519-pub") return readPublic(rest);
  if (kind === "ed25519") throw new Error("give the public key (ed25519-pub:…), never the private one");
  if (!kind || !rest.length) throw new Error(`a key has no key id; ${HOW}`);
  const secret = rest.join(":");
  if ([...secret].length < SHORTEST_SECRET) {
    throw new Error(`the secret of key '${kind}' has less than ${SHORTEST_SECRET} characters, which can be guessed`);
  }
  return [kind, hmacKey(encode(secret))];
}

function readPublic([keyId, ...encoded]) {
  if (!keyId) throw new Error(`a key has no key id; ${HOW}`);
  const base64 = encoded.join(":");
  let bytes = [];
  try {
    if (!/\s/.test(base64)) bytes = fromBase64(base64); // atob ignores white space
  } catch (error) {
    if (error.name !== "InvalidCharacterError") throw error;
  }
  if (bytes.length !== 32) throw new Error(`key '${keyId}' is not the base64 of 32 bytes; ${HOW}`);
  if (isWeak(bytes)) throw new Error(`key '${keyId}' is a weak public key, with which anyone can make signatures`);
  return [keyId, ed25519Key(bytes)];
}

// The y, or its negative, of the points of small order; any point has one form, with y below the prime.
const PRIME = 2n ** 255n - 19n;
const SMALL_ORDER = [0n, 1n, 0x05fc536d880238b13933c6d305acdfd5f098eff289f4c345b027b2c28f95e826n];

function isWeak(bytes) {
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0"));
  const y = BigInt(`0x${hex.reverse().join("")}`) % 2n ** 255n; // without the sign of x
  return y >= PRIME || SMALL_ORDER.includes(y) || SMALL_ORDER.includes(PRIME - y);
}

function hmacKey(secret) {
  return {
    algorithm: "HMAC-SHA256",
    async check(message, signature) {
      const { subtle } = await webcrypto();
      const algorithm = { name: "HMAC", hash: "SHA-256" };
      const key = await subtle.importKey("raw", secret, algorithm, false, ["verify"]);
      return isBase64(signature) && subtle.verify("HMAC", key, fromBase64(signature), message);
    },
  };
}

function ed25519Key(bytes) {
  return {
    algorithm: "Ed25519",
    async check(message, signature) {
      const { subtle } = await webcrypto();
      const key = await subtle.importKey("raw", bytes, { name: "Ed25519" }, false, ["verify"]);
      return isBase64(signature) && subtle.verify("Ed25519", key, fromBase64(signature), message);
    },
  };
}

// Bytes and hashes

async function webcrypto() {
  if (globalThis.crypto?.subtle) return globalThis.crypto;
  if (globalThis.process?.versions?.node) return (await import("node:crypto")).webcrypto;
  throw new Error("this page cannot compute hashes; open it from a file, from localhost or over https");
}

const encode = (text) => new TextEncoder().encode(text);

async function sha256(content) {
  const { subtle } = await webcrypto();
  const digest = await subtle.digest("SHA-256", isText(content) ? encode(content) : content);
  return [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

const hashOf = async (text) => `sha256:${await sha256(text)}`;

function fromBase64(text) {
  const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(binary, (character) => character.charCodeAt(0));
}

function isBase64(text) {
  if (!/^[A-Za-z0-9_-]*$/.test(text) || text.length % 4 === 1) return false;
  // One by one: as arguments of one call, very many bytes would not fit the stack.
  const back = btoa(Array.from(fromBase64(text), (byte) => String.fromCharCode(byte)).join(""));
  return back.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "") === text;
}

// JSON that every parser reads in the same way: integers within ±(2^53-1), unique keys, no lone
// surrogates. Objects are Maps, so that keys such as __proto__ have no special meaning.

/** The RFC 8785 text of a parsed value. */
export function canonical(value) {
  if (isObject(value)) {
    const keys = [...value.keys()].sort(); // by UTF-16, as RFC 8785 has it
    return `{${keys.map((key) => `${JSON.stringify(key)}:${canonical(value.get(key))}`).join(",")}}`;
  }
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  return JSON.stringify(value);
}

/** Parse JSON; throw where parsers disagree. */
export function parse(text) {
  const reader = new Reader(text);
  const value = reader.value();
  reader.space();
  if (reader.at < text.length) reader.fail("more follows");
  return value;
}

class Reader {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.depth = 0;
  }

  fail(problem) {
    throw new SyntaxError(`${problem} at character ${this.at}`);
  }

  space() {
    while (" \t\n\r".includes(this.text[this.at] ?? "x")) this.at += 1;
  }

  /** Consume this text if it comes next. */
  takes(token) {
    this.space();
    if (!this.text.startsWith(token, this.at)) return false;
    this.at += token.length;
    return true;
  }

  value() {
    this.space();
    const first = this.text[this.at];
    if (first === '"') return this.string();
    if (this.takes("{")) return this.inside(() => this.object());
    if (this.takes("[")) return this.inside(() => this.array());
    for (const [token, value] of [["null", null], ["true", true], ["false", false]]) {
      if (this.takes(token)) return value;
    }
    return this.integer();
  }

  /** Read a container; throw if it is nested too deep for some parser's stack. */
  inside(read) {
    this.depth += 1;
    if (this.depth > DEEPEST) this.fail(`it is nested deeper than ${DEEPEST} levels`);
    const found = read();
    this.depth -= 1;
    return found;
  }

  object() {
    const found = new Map();
    if (this.takes("}")) return found;
    do {
      this.space();
      const key = this.string();
      if (found.has(key)) this.fail(`the key ${JSON.stringify(key)} is there twice`);
      if (!this.takes(":")) this.fail("a colon is missing");
      found.set(key, this.value());
    } while (this.takes(","));
    if (!this.takes("}")) this.fail("an object does not end");
    return found;
  }

  array() {
    const found = [];
    if (this.takes("]")) return found;
    do found.push(this.value());
    while (this.takes(","));
    if (!this.takes("]")) this.fail("an array does not end");
    return found;
  }

  string() {
    let end = this.at + 1;
    if (this.text[this.at] !== '"') this.fail("a string is missing");
    while (end < this.text.length && this.text[end] !== '"') end += this.text[end] === "\\" ? 2 : 1;
    const found = JSON.parse(this.text.slice(this.at, end + 1));
    if (/\p{Surrogate}/u.test(found)) this.fail("a lone surrogate is not a character");
    this.at = end + 1;
    return found;
  }

  integer() {
    const [token] = /^-?[0-9][0-9.eE+-]*/.exec(this.text.slice(this.at, this.at + 400)) ?? [""];
    if (!token) this.fail("a value is missing");
    const found = Number(token);
    if (!/^(0|-?[1-9][0-9]*)$/.test(token)) this.fail(`the number ${token} is not an integer`);
    if (!Number.isSafeInteger(found)) this.fail(`the number ${token} is not exact in every parser`);
    this.at += token.length;
    return found;
  }
}
