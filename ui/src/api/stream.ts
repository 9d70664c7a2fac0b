/** Server-sent events, read with fetch: an EventSource cannot send a key in a header. */
import { requested } from "./client";
import { ProblemError } from "./problems";
import { mayPass } from "./queries";

export type Message = { id: string; type: string; data: string };

export type StreamState =
  | { phase: "connecting" }
  | { phase: "live" }
  /** The connection ended; it is tried again at a time. */
  | { phase: "waiting"; until: number; error: unknown }
  /** The server refused, and would refuse again. */
  | { phase: "refused"; error: unknown };

const FIRST_WAIT_MS = 1_000;
const LONGEST_WAIT_MS = 15_000;
/** The server sends a comment every five seconds. */
const SILENCE_MS = 20_000;

/** Splits a stream of text into messages, in whatever pieces it arrives. */
export class MessageParser {
  /** The id of the last message, with which to continue; it also moves without messages. */
  lastId = "";
  private rest = "";
  private afterReturn = false;
  private type = "";
  private data: string[] = [];
  private id = "";

  push(text: string): Message[] {
    const found: Message[] = [];
    // A line break of two characters may arrive in two pieces.
    this.rest += this.afterReturn && text.startsWith("\n") ? text.slice(1) : text;
    this.afterReturn = text === "" ? this.afterReturn : text.endsWith("\r");
    const lines = this.rest.split(/\r\n|\r|\n/);
    this.rest = lines.pop() ?? "";
    for (const line of lines) {
      const message = this.line(line);
      if (message !== null) found.push(message);
    }
    return found;
  }

  private line(line: string): Message | null {
    if (line === "") return this.dispatch();
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") this.data.push(value);
    else if (name === "event") this.type = value;
    else if (name === "id" && !value.includes("\0")) this.id = value;
    return null; // a comment, or a field that says nothing to us
  }

  private dispatch(): Message | null {
    this.lastId = this.id;
    const message = { id: this.id, type: this.type || "message", data: this.data.join("\n") };
    const isEmpty = this.data.length === 0;
    this.type = "";
    this.data = [];
    return isEmpty ? null : message;
  }
}

type Options = {
  signal: AbortSignal;
  onMessage: (message: Message) => void;
  onState: (state: StreamState) => void;
  /** Continue after this message. */
  after?: string;
};

/** Follow a stream until the signal: reconnect after the last message when the server went away. */
export async function follow(path: string, options: Options): Promise<void> {
  const { signal, onState } = options;
  const isOver = () => signal.aborted;
  let after = options.after ?? "";
  let wait = FIRST_WAIT_MS;
  while (!isOver()) {
    let error: unknown = null;
    onState({ phase: "connecting" });
    try {
      const progress = { ...options, after, onLive: () => (wait = FIRST_WAIT_MS) };
      for await (const id of readOnce(path, progress)) after = id;
    } catch (caught) {
      error = caught;
    }
    if (isOver()) return;
    if (error instanceof ProblemError && !mayPass(error)) {
      onState({ phase: "refused", error });
      return;
    }
    onState({ phase: "waiting", until: Date.now() + wait, error });
    await pause(wait, signal);
    wait = Math.min(wait * 2, LONGEST_WAIT_MS);
  }
}

/** Read one response to its end; yield the id with which to continue. */
async function* readOnce(
  path: string,
  { signal, onMessage, onState, after, onLive }: Options & { onLive: () => void },
): AsyncGenerator<string> {
  const silence = new AbortController();
  const hush = () => silence.abort(new DOMException("The server is silent.", "TimeoutError"));
  let timer = setTimeout(hush, SILENCE_MS);
  try {
    const response = await requested(path, {
      headers: { Accept: "text/event-stream", ...(after ? { "Last-Event-ID": after } : {}) },
      signal: AbortSignal.any([signal, silence.signal]),
      cache: "no-store",
    });
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
    if (reader === undefined) return;
    onState({ phase: "live" });
    onLive();
    const parser = new MessageParser();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(hush, SILENCE_MS);
      for (const message of parser.push(value)) {
        if (message.type === "problem") throw problemIn(message);
        onMessage(message);
      }
      if (parser.lastId) yield parser.lastId;
    }
  } finally {
    clearTimeout(timer);
    silence.abort();
  }
}

/** Return the problem that ended a response whose status had been sent. */
function problemIn(message: Message): ProblemError {
  return new ProblemError(JSON.parse(message.data) as ProblemError["problem"]);
}

/** Wait, or return at once when the signal comes. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
