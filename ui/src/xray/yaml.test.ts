import { expect, it } from "vitest";

import { toYaml } from "./yaml";

it("writes nested values, and quotes what a parser could take for something else", () => {
  const value = {
    name: "support",
    yes: "no",
    empty: [],
    text: "a: b\n",
    number: 1.5,
    items: [{ a: 1, b: [2, null] }, "x y", []],
    inner: { "": true },
  };
  expect(toYaml(value)).toBe(
    [
      "name: support",
      '"yes": "no"',
      "empty: []",
      'text: "a: b\\n"',
      "number: 1.5",
      "items:",
      '  - "a": 1',
      '    "b":',
      "      - 2",
      "      - null",
      '  - "x y"',
      "  - []",
      "inner:",
      '  "": true',
      "",
    ].join("\n"),
  );
});
