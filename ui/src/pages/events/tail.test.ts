import { expect, it } from "vitest";

import { MOST_SHOWN, TailBuffer } from "./tail";

function event(n: number) {
  const logged = {
    event: { event_type: "visit", entity_id: "ada", payload: { n } },
    received_at: "2026-01-15T09:23:12Z",
  };
  return { id: String(n), type: "message", data: JSON.stringify(logged) };
}

function numbers(buffer: TailBuffer): unknown[] {
  buffer.draw();
  return buffer.read().events.map(({ event: { payload } }) => (payload as { n?: number }).n);
}

it("shows the newest event first", () => {
  const buffer = new TailBuffer();
  for (const n of [1, 2, 3]) buffer.take(event(n));
  expect(numbers(buffer)).toEqual([3, 2, 1]);
});

it("counts what arrives during a pause and shows it afterwards", () => {
  const buffer = new TailBuffer();
  buffer.take(event(1));
  buffer.pause();
  for (const n of [2, 3]) buffer.take(event(n));
  expect(numbers(buffer)).toEqual([1]);
  expect(buffer.read()).toMatchObject({ isPaused: true, waiting: 2 });
  buffer.resume();
  expect(numbers(buffer)).toEqual([3, 2, 1]);
  expect(buffer.read()).toMatchObject({ isPaused: false, waiting: 0 });
});

it("keeps a limited number of events, also during a pause", () => {
  const buffer = new TailBuffer();
  buffer.pause();
  for (let n = 0; n < 3 * MOST_SHOWN; n += 1) buffer.take(event(n));
  buffer.draw();
  expect(buffer.read().waiting).toBe(3 * MOST_SHOWN);
  buffer.resume();
  expect(numbers(buffer)).toHaveLength(MOST_SHOWN);
  expect(numbers(buffer)[0]).toBe(3 * MOST_SHOWN - 1);
});

it("adds up the events that the server left out", () => {
  const buffer = new TailBuffer();
  buffer.take({ id: "", type: "gap", data: '{"skipped":12}' });
  buffer.take({ id: "", type: "gap", data: '{"skipped":3}' });
  expect(buffer.read().skipped).toBe(15);
});
