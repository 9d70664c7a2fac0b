import { expect, it } from "vitest";

import { hrefOf, words } from "./links";

it("leads to the page that shows a finding, with its filters", () => {
  expect(hrefOf("dead-letters", { feature: "a b" })).toBe("/dead-letters?feature=a+b");
  expect(hrefOf("doctor", {})).toBe("/doctor");
  expect(hrefOf("nowhere", {})).toBeNull();
});

it("finds commands and names in a sentence", () => {
  expect(words("Run `headwater lag` for past_orders now")).toEqual([
    { text: "Run ", isCode: false },
    { text: "headwater lag", isCode: true },
    { text: " for ", isCode: false },
    { text: "past_orders", isCode: true },
    { text: " now", isCode: false },
  ]);
  expect(words("/tmp/a_b/c")).toEqual([{ text: "/tmp/a_b/c", isCode: false }]);
});
