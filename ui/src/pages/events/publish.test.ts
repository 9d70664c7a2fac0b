import { expect, it } from "vitest";

import { parsedPayload } from "./Payload";

it("reads a payload, which is an object", () => {
  expect(parsedPayload('{"amount": 40}')).toEqual({ amount: 40 });
  expect(parsedPayload("  ")).toEqual({});
});

it("says what is wrong with another text", () => {
  expect(parsedPayload("{amount: 40}")).toMatch(/^This is not JSON/);
  for (const text of ["[1]", "1", "null", '"x"']) {
    expect(parsedPayload(text)).toMatch(/^A payload is an object/);
  }
});
