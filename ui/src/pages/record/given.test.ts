import { expect, it } from "vitest";

import type { Trace } from "~/xray";

import { inputsOf, interactionOf } from "./given";

const trace = {
  inputs: { user_id: "ada", "a/b": null, text: "x\n".repeat(100), filters: { open: true } },
  interaction_ref: { ticket: "T-1", turn: 4 },
  redacted: ["/inputs/a~1b"],
  withheld: ["/interaction_ref/ticket"],
} as unknown as Trace;

it("puts arguments on one line, and cuts long ones", () => {
  const [user, hidden, text, filters] = inputsOf(trace);
  expect(user).toEqual({ name: "user_id", text: "ada", absence: null });
  expect(hidden).toEqual({ name: "a/b", text: null, absence: "redacted" });
  expect(text?.text).toBe(`${"x ".repeat(60)} …`);
  expect(filters?.text).toBe('{"open":true}');
});

it("says what a copy of the record withholds, and takes a record without an interaction", () => {
  expect(interactionOf(trace)).toEqual([
    { name: "ticket", text: null, absence: "withheld" },
    { name: "turn", text: "4", absence: null },
  ]);
  expect(interactionOf({ ...trace, interaction_ref: null })).toEqual([]);
  const whole = { ...trace, interaction_ref: null, withheld: ["/interaction_ref"] };
  expect(interactionOf(whole)).toEqual([
    { name: "interaction_ref", text: null, absence: "withheld" },
  ]);
});
