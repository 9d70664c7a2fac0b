import { expect, it } from "vitest";

import { beginning, nextBefore } from "./past";

function page(count: number, spread: number) {
  return Array.from({ length: count }, (_, n) => ({
    event: {
      event_type: "visit",
      entity_id: "ada",
      payload: {},
      timestamp: new Date(1_000_000 - n * spread).toISOString(),
    },
    received_at: "2026-01-15T09:23:12Z",
  }));
}

it("asks for the next page from the last moment of the page before", () => {
  expect(nextBefore(page(200, 10))).toBe(new Date(1_000_000 - 1_990 + 1).toISOString());
  expect(nextBefore(page(199, 10))).toBeUndefined();
});

it("goes on after a page of one moment", () => {
  expect(nextBefore(page(200, 0))).toBe(new Date(1_000_000).toISOString());
});

it("begins a range at its length before now", () => {
  expect(beginning("1h", 7_200_000)).toBe(new Date(3_600_000).toISOString());
  expect(beginning("all", 7_200_000)).toBeUndefined();
});
