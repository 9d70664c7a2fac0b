import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { eventually } from "~/testing/eventually";

import { follow, MessageParser, type Message, type StreamState } from "./stream";

const TEXT =
  'retry: 2000\n\n: heartbeat\nid: 40\n\nid: 41\ndata: {"n":\ndata: 1}\n\nevent: gap\ndata: 3\n\n';
const EXPECTED = [
  { id: "41", type: "message", data: '{"n":\n1}' },
  { id: "41", type: "gap", data: "3" },
];

it("parses messages in whatever pieces they arrive", () => {
  for (const breaks of ["\n", "\r\n", "\r"]) {
    const text = TEXT.replaceAll("\n", breaks);
    for (const size of [1, 2, 3, 7, 1_000]) {
      const parser = new MessageParser();
      const found: Message[] = [];
      for (let at = 0; at < text.length; at += size) {
        found.push(...parser.push(text.slice(at, at + size)));
      }
      expect(found).toEqual(EXPECTED);
    }
  }
});

it("moves the last id without a message, so that a client continues after others' events", () => {
  const parser = new MessageParser();
  expect(parser.push(": heartbeat\nid: 17\n\n")).toEqual([]);
  expect(parser.lastId).toBe("17");
  expect(parser.push("data: x\n\n")).toEqual([{ id: "17", type: "message", data: "x" }]);
});

it("does not take the id of a message that was cut off", () => {
  const parser = new MessageParser();
  parser.push("id: 1\ndata: a\n\nid: 2\ndata: b\n");
  expect(parser.lastId).toBe("1");
});

function response(text: string): Response {
  return new Response(text, { status: 200, headers: { "content-type": "text/event-stream" } });
}

const requests: Request[] = [];
let answers: (() => Response | Promise<Response>)[] = [];

beforeEach(() => {
  requests.length = 0;
  vi.useFakeTimers();
  vi.stubGlobal("fetch", (request: Request) => {
    requests.push(request);
    const next = answers.shift();
    if (next === undefined) return new Promise<Response>(() => undefined);
    return Promise.resolve(next());
  });
});

afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

function following() {
  const messages: Message[] = [];
  const states: StreamState[] = [];
  const stop = new AbortController();
  const ended = follow("/v1/events/tail", {
    signal: stop.signal,
    onMessage: (message) => messages.push(message),
    onState: (state) => states.push(state),
  });
  return { messages, states, stop, ended };
}

it("reconnects after the last message when the server went away", async () => {
  answers = [
    () => response("id: 7\ndata: a\n\n"),
    () => {
      throw new TypeError("refused");
    },
    () => response("id: 8\ndata: b\n\n"),
  ];
  const { messages, states, stop, ended } = following();
  await eventually(() => expect(messages).toHaveLength(1));
  await vi.advanceTimersByTimeAsync(1_000);
  expect(states.at(-1)).toMatchObject({ phase: "waiting" });
  await vi.advanceTimersByTimeAsync(2_000);
  await eventually(() => expect(messages).toHaveLength(2));
  expect(requests.map((each) => each.headers.get("Last-Event-ID"))).toEqual([null, "7", "7"]);
  stop.abort();
  await ended;
});

it("ends when the server refuses", async () => {
  answers = [() => Response.json({ title: "Key without the scope" }, { status: 403 })];
  const { states, ended } = following();
  await ended;
  expect(states.at(-1)).toMatchObject({ phase: "refused", error: { status: 403 } });
});

it("waits and tries again after a problem in the stream", async () => {
  const problem = JSON.stringify({ type: "x", title: "Store unavailable", status: 503 });
  answers = [() => response(`event: problem\ndata: ${problem}\n\n`)];
  const { states, stop, ended } = following();
  await eventually(() =>
    expect(states.at(-1)).toMatchObject({ phase: "waiting", error: { status: 503 } }),
  );
  stop.abort();
  await ended;
});
