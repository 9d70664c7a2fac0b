import { expect, it } from "vitest";

import { kindWord, partLabel, placesOf } from "./lanes";
import type { Item } from "./model";

const MESSAGE: NonNullable<Item["message"]> = {
  kind: "text",
  role: "user",
  number: 0,
  turn: null,
  group: null,
  cache: false,
  image: null,
};

function item(content: object | string | null, message: Partial<typeof MESSAGE> | null): Item {
  const text = typeof content === "object" && content !== null ? JSON.stringify(content) : content;
  return {
    content: text,
    emitted: text,
    message: message && { ...MESSAGE, ...message },
  } as unknown as Item;
}

it("knows no places in a context without roles", () => {
  expect(placesOf([item("Hello", null)])).toBeNull();
  expect(placesOf([])).toBeNull();
});

it("links a tool call to its result and names both by the tool", () => {
  const call = { type: "tool_call", id: "c1", name: "find_order", arguments: {} };
  const result = { type: "tool_call_response", id: "c1", response: "shipped" };
  const other = { type: "tool_call_response", id: "c2", response: "lost" };
  const places =
    placesOf([
      item(call, { kind: "tool_call", group: 0 }),
      item(result, { kind: "tool_result", group: 0 }),
      item(other, { kind: "tool_result" }),
    ]) ?? [];
  expect(places.map(({ half }) => half)).toEqual([1, 0, null]);
  expect(places.map(({ together }) => together)).toEqual([[1], [0], []]);
  expect(places.map((each) => partLabel(each, places))).toEqual([
    "find_order",
    "find_order",
    "tool result",
  ]);
});

it("puts the bytes of an image into its part, and shows what cannot be read as text", () => {
  const image = { type: "blob", mime_type: "image/png", digest: "sha256:ab", size: 4 };
  const [drawn, broken, withheld] =
    placesOf([
      item(image, { kind: "image", image: "iVBORw==" }),
      item("not JSON", { kind: "tool_call" }),
      item(null, { kind: "reasoning", role: "assistant" }),
    ]) ?? [];
  expect(drawn?.part).toEqual({ ...image, content: "iVBORw==" });
  expect(broken?.part).toBeNull();
  expect([withheld?.part, withheld?.lane]).toEqual([null, "assistant"]);
  expect(withheld && kindWord(withheld)).toBe("reasoning");
});
