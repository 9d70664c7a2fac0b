import { expect, it } from "vitest";

import { returned, summary } from "./outcomes";
import type { Letter } from "./queries";

const settled = (done: number, gone: number) => [
  ...Array.from({ length: done }, (_, n) => ({ id: String(n), outcome: "redriven" as const })),
  ...Array.from({ length: gone }, (_, n) => ({ id: `g${n}`, outcome: "gone" as const })),
];

it("says what happened to the letters", () => {
  expect(summary("redrive", settled(1, 0))).toBe("1 letter published again.");
  expect(summary("redrive", settled(1_200, 2))).toBe("1,200 letters published again, 2 were gone.");
  expect(summary("redrive", settled(3, 1), 2)).toBe(
    "3 letters published again, 2 failed again, 1 was gone.",
  );
  expect(summary("discard", settled(0, 1))).toBe("No letter discarded, 1 was gone.");
  expect(summary("discard", [])).toMatch(/another call was faster/);
});

it("knows the letters that a redrive has left again", () => {
  const letter = (id: string, event_id: string) => ({ id, event: { event_id } }) as Letter;
  const letters = [letter("9", "redrive:7:order-1"), letter("8", "order-2")];
  expect([...returned(letters)]).toEqual([["7", "9"]]);
});
