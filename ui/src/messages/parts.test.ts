import { expect, it } from "vitest";

import { bytesText, imageAddress, imageWords, jsonText, parametersOf, parsedPart } from "./parts";

it("reads the parts that items of a record are, and nothing else", () => {
  const call = { type: "tool_call", id: "c1", name: "find_order", arguments: { order: 7 } };
  expect(parsedPart(JSON.stringify(call))).toEqual(call);
  expect(parsedPart('{"type":"tool_call","name":"find_order"}')).toBeNull();
  expect(parsedPart('{"type":"toString"}')).toBeNull();
  expect(parsedPart("null")).toBeNull();
  expect(parsedPart("Where is my order?")).toBeNull();
});

it("draws images from their bytes alone, and only formats that run nothing", () => {
  const png = { type: "blob", mime_type: "image/png", content: "iVBORw==" } as const;
  expect(imageAddress(png)).toBe("data:image/png;base64,iVBORw==");
  expect(imageWords(png)).toBe("image/png, 4 bytes");
  expect(imageAddress({ ...png, mime_type: "image/svg+xml" })).toBeNull();
  expect(imageAddress({ ...png, content: undefined })).toBeNull();
  expect(imageWords({ ...png, content: undefined, size: 12_430 })).toBe("image/png, 12.4 kB");
  expect(bytesText(3_140_000)).toBe("3.14 MB");
});

it("writes short values on one line and long ones in several", () => {
  expect(jsonText({ order: 7 })).toBe('{"order":7}');
  expect(jsonText("a\nb")).toBe("a\nb");
  expect(jsonText({ text: "x".repeat(100) })).toContain("\n");
});

it("names the parameters of a tool", () => {
  const parameters = {
    type: "object",
    properties: {
      order: { type: "integer" },
      by: { enum: ["id", "date"] },
      note: { type: ["string", "null"] },
      rest: true,
    },
    required: ["order"],
  };
  expect(parametersOf({ type: "function", name: "f", parameters })).toEqual([
    { name: "order", type: "integer", isRequired: true },
    { name: "by", type: '"id" | "date"', isRequired: false },
    { name: "note", type: "string | null", isRequired: false },
    { name: "rest", type: "any", isRequired: false },
  ]);
  expect(parametersOf({ type: "function", name: "f", parameters: "broken" })).toEqual([]);
});
