import { expect, it } from "vitest";

import { parsed } from "./parameters";
import { fieldsOf } from "./schemas";

const SCHEMA = {
  type: "object",
  required: ["amount", "paid"],
  properties: {
    amount: { type: "number", description: "The price." },
    paid: { type: "boolean" },
    channel: { $ref: "#/$defs/Channel", default: "web" },
    kind: { anyOf: [{ enum: ["a", "b"] }, { type: "null" }], default: null },
    at: { anyOf: [{ type: "string", format: "date-time" }, { type: "null" }], default: null },
    lines: { type: "array", items: { $ref: "#/$defs/Line" }, default: [] },
    line: { $ref: "#/$defs/Line" },
  },
  $defs: {
    Channel: { title: "Channel", enum: ["web", "shop"] },
    Line: { title: "Line", type: "object", properties: {} },
  },
};

it("has a field for each property, with its type, default, description and choices", () => {
  const fields = Object.fromEntries(fieldsOf(SCHEMA).map((each) => [each.name, each]));
  expect(fields.amount).toEqual({
    name: "amount",
    type: "float",
    required: true,
    default: null,
    description: "The price.",
  });
  expect(fields.paid?.type).toBe("bool");
  expect(fields.channel).toMatchObject({ choices: ["web", "shop"], default: "web" });
  expect(fields.kind?.choices).toEqual(["a", "b", null]);
  expect(fields.at?.type).toBe("datetime.datetime | None");
  expect(fields.lines?.type).toBe("list[Line]");
  expect(fields.line?.type).toBe("Line");
  expect(fieldsOf({ type: "object" })).toEqual([]);
});

it("reads what was entered as the payload", () => {
  const fields = fieldsOf(SCHEMA);
  const texts = { amount: "5", paid: "false", channel: '"shop"', kind: "null", lines: "[]" };
  expect(parsed(fields, texts)).toEqual({
    params: { amount: 5, paid: false, channel: "shop", kind: null, lines: [] },
    problems: {},
  });
  expect(parsed(fields, {}).problems).toHaveProperty("amount");
});
