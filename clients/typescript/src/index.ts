/**
 * The HTTP API of Headwater: a method for each operation of its OpenAPI document.
 *
 *     const headwater = createClient({ url: "http://localhost:8000", key: "hw_…" });
 *     await headwater.ingest_event({ event_type: "purchase", wait: "5s", body: { entity_id: "ada", payload: { amount: 40 } } });
 *     const { value } = await headwater.read_feature({ name: "total_spend", entity_id: "ada" });
 */
import { type Operation, routes } from "./routes.js";
import type { components, operations } from "./schema.js";

export type Schemas = components["schemas"];

export interface Options {
  /** The address of a server; in a page that it serves, its own. */
  url?: string | undefined;
  key?: string | undefined;
  /** How often a request is sent again; 3 unless set. */
  retries?: number | undefined;
  /** Seconds that one attempt may take; 30 unless set. Of an answer in lines, until it begins. */
  timeout?: number | undefined;
  headers?: Record<string, string> | undefined;
  fetch?: typeof fetch | undefined;
}

/** What holds for one call. */
export interface CallOptions {
  /** Ends the call at any time: also a pause before a further attempt, and an answer in lines. */
  signal?: AbortSignal | undefined;
  /** In place of the client's `timeout`, such as `Infinity` for a large file. */
  timeout?: number | undefined;
  /** Further headers, such as `Last-Event-ID` of `tail_events`. */
  headers?: Record<string, string> | undefined;
}

type Parameters<O extends Operation> = operations[O]["parameters"];
type Part<P> = NonNullable<P> extends infer Q ? ([Q] extends [never] ? unknown : Q) : unknown;
type Content<B> = B extends { content: infer C }
  ? C extends { "application/json": infer J }
    ? J
    : Blob
  : never;
type Body<O extends Operation> = operations[O] extends { requestBody: infer B }
  ? { body: Content<B> }
  : operations[O] extends { requestBody?: infer B }
    ? { body?: [NonNullable<B>] extends [never] ? never : Content<B> }
    : unknown;

/** The parameters of path and query by their names, and the body: a `Blob` with its type if it is a file. */
export type Arguments<O extends Operation> = Part<Parameters<O>["path"]> &
  Part<Parameters<O>["query"]> &
  Body<O>;

type Answer<R> = R extends { content: infer C }
  ? C extends { "application/json": infer J }
    ? J
    : Response
  : undefined;

/** What an operation returns: its JSON, or the whole response if it answers in lines or as text. */
export type Result<O extends Operation> = Answer<
  operations[O]["responses"][keyof operations[O]["responses"]]
>;

type Call<O extends Operation> =
  Record<never, never> extends Arguments<O>
    ? (given?: Arguments<O>, options?: CallOptions) => Promise<Result<O>>
    : (given: Arguments<O>, options?: CallOptions) => Promise<Result<O>>;

export type Client = { readonly [O in Operation]: Call<O> };

/** An answer of the server that is no success; `type` never changes, texts may. */
export class ProblemError extends Error {
  readonly type: string;
  readonly status: number;
  /** All members of the problem: see docs/reference/problems.md. */
  readonly problem: Record<string, unknown>;
  /** Seconds that the server asks to wait, or 0. */
  readonly retryAfter: number;

  constructor(status: number, problem: Record<string, unknown>, retryAfter = 0) {
    super(String(problem["detail"] ?? problem["title"] ?? `the server answered ${status}`));
    this.name = "ProblemError";
    this.type = String(problem["type"] ?? "").replace("urn:headwater:problem:", "");
    this.status = status;
    this.problem = problem;
    this.retryAfter = retryAfter;
  }
}

export function createClient(options: Options = {}): Client {
  const calls = Object.keys(routes).map((name) => {
    const operation = name as Operation;
    const call = (given?: Given, own?: CallOptions) => send(options, operation, given ?? {}, own);
    return [operation, call];
  });
  return Object.fromEntries(calls) as Client;
}

type Given = Record<string, unknown>;

/** Refusals of a server that has begun nothing, so that any request may be sent again. */
const REFUSALS = ["backlog", "store-full", "too-many-connections", "too-many-calls"];
const LONGEST_PAUSE = 10_000;
const LONGEST_TIMER = 2 ** 31 - 1;

async function send(options: Options, name: Operation, given: Given, own: CallOptions = {}) {
  const [method, template] = routes[name];
  const { body, ...parameters } = given;
  const path = template.replace(/\{(\w+)\}/g, (_, part: string) => {
    const value = parameters[part];
    delete parameters[part];
    if (value === undefined) throw new TypeError(`${name} needs ${part}`);
    return encodeURIComponent(String(value));
  });
  const address = (options.url ?? "").replace(/\/$/, "") + path + query(parameters);
  const headers: Record<string, string> = { ...options.headers, ...own.headers };
  if (options.key !== undefined) headers["X-API-Key"] = options.key;
  const isFile = body === undefined || body instanceof Blob;
  if (!isFile) headers["Content-Type"] = "application/json";
  const content = isFile ? body : JSON.stringify(identified(name, body));
  // An event has an id, so the server recognises it; what else a POST began is not begun again.
  const isRepeatable = method !== "POST" || name === "ingest_event" || name === "ingest_events";
  const retries = options.retries ?? 3;
  const seconds = own.timeout ?? options.timeout ?? 30;
  for (let attempt = 0; ; attempt += 1) {
    let pause = Math.min(100 * 2 ** attempt, LONGEST_PAUSE) * (0.5 + Math.random() / 2);
    try {
      return await limited(seconds, own.signal, async (signal) => {
        const request = { method, headers, body: content, signal };
        return result(await (options.fetch ?? fetch)(address, request));
      });
    } catch (error) {
      if (attempt >= retries || own.signal?.aborted) throw error;
      if (error instanceof ProblemError) {
        const isRefused = error.status === 429 || REFUSALS.includes(error.type);
        const isLost = isRepeatable && [502, 503, 504].includes(error.status);
        if (!(isRefused || isLost) || error.retryAfter * 1000 > LONGEST_PAUSE) throw error;
        pause = Math.max(pause, error.retryAfter * 1000);
      } else if (!isRepeatable) throw error;
    }
    await sleep(pause, own.signal);
  }
}

/** Run an attempt, which ends with the caller's signal and after a time; what it returns has no limit. */
async function limited<T>(
  seconds: number,
  signal: AbortSignal | undefined,
  run: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  signal?.throwIfAborted();
  const limit = new AbortController();
  const message = `the server did not answer within ${seconds} s`;
  const timer = setTimeout(
    () => limit.abort(new DOMException(message, "TimeoutError")),
    Math.min(seconds * 1000, LONGEST_TIMER),
  );
  try {
    return await run(signal ? AbortSignal.any([signal, limit.signal]) : limit.signal);
  } finally {
    clearTimeout(timer);
  }
}

async function sleep(milliseconds: number, signal: AbortSignal | undefined): Promise<void> {
  await new Promise<void>((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, milliseconds);
    signal?.addEventListener("abort", end);
  });
  signal?.throwIfAborted();
}

function query(parameters: Given): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters))
    for (const each of Array.isArray(value) ? value : [value])
      if (each !== undefined && each !== null) search.append(name, String(each));
  return search.size ? `?${search}` : "";
}

/** Give every event an id, so that one that is sent again is recognised. */
function identified(name: Operation, body: unknown): unknown {
  const own = (event: object) => ({ event_id: randomId(), ...event });
  if (name === "ingest_event") return own(body as object);
  return name === "ingest_events" ? (body as object[]).map(own) : body;
}

/** Return 128 random bits; pages without TLS have no `crypto.randomUUID`. */
function randomId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (each) => each.toString(16).padStart(2, "0")).join("");
}

async function result(answer: Response): Promise<unknown> {
  if (!answer.ok) {
    const wait = answer.headers.get("Retry-After") ?? "";
    throw new ProblemError(answer.status, problem(await answer.text()), secondsOf(wait));
  }
  if (answer.status === 204) return undefined;
  const kind = answer.headers.get("Content-Type") ?? "";
  return kind.startsWith("application/json") ? answer.json() : answer;
}

function problem(text: string): Record<string, unknown> {
  if (text.startsWith("{"))
    try {
      return JSON.parse(text) as Record<string, unknown>;
    } catch {
      // It is the text of something in between.
    }
  return { title: text.slice(0, 200) };
}

/** Return the seconds of `Retry-After`, which is a number or a date; 0 without one. */
function secondsOf(wait: string): number {
  const seconds = Number(wait);
  const until = Number.isNaN(seconds) ? (Date.parse(wait) - Date.now()) / 1000 : seconds;
  return Math.max(0, until || 0);
}
