import { describe, expect, it } from "vitest";

import { isOptional, kindOf, objectOf, parsed, textsOf, type Parameter } from "./parameters";

const parameter = (
  name: string,
  type: string | null,
  given: { default?: unknown } | null = null,
): Parameter => ({ name, type, required: given === null, default: given?.default ?? null });

describe("kindOf", () => {
  it.each([
    ["str", "text"],
    ["str | None", "text"],
    ["int", "integer"],
    ["float | None", "number"],
    ["bool", "boolean"],
    ["list[str]", "json"],
    ["str | int", "json"],
    ["Literal['a', 'b']", "json"],
    ["dict[str, str | None]", "json"],
    [null, "json"],
  ] as const)("enters %s as %s", (type, kind) => {
    expect(kindOf(type)).toBe(kind);
  });

  it("knows which may be None", () => {
    expect(isOptional("str | None")).toBe(true);
    expect(isOptional("str")).toBe(false);
    expect(isOptional(null)).toBe(false);
  });
});

describe("parsed", () => {
  const parameters = [
    parameter("user_id", "str"),
    parameter("top_k", "int", { default: 5 }),
    parameter("tags", "list[str]", { default: [] }),
    parameter("strict", "bool", { default: false }),
  ];

  it("leaves out what keeps its default", () => {
    expect(parsed(parameters, { user_id: "ada", top_k: "" })).toEqual({
      params: { user_id: "ada" },
      problems: {},
    });
  });

  it("converts every field to its type", () => {
    const texts = { user_id: "7", top_k: "3", tags: '["a"]', strict: "true" };
    expect(parsed(parameters, texts).params).toEqual({
      user_id: "7",
      top_k: 3,
      tags: ["a"],
      strict: true,
    });
  });

  it("keeps the digits of numbers beyond 2**53", () => {
    const { params } = parsed(parameters, { user_id: "a", top_k: "9007199254740993" });
    expect(params.top_k).toBe("9007199254740993");
  });

  it("names the problem of each field", () => {
    const { problems } = parsed(parameters, { top_k: "many", tags: "a, b" });
    expect(Object.keys(problems)).toEqual(["user_id", "top_k", "tags"]);
    expect(problems.top_k).toContain("whole number");
    expect(problems.tags).toContain("not JSON");
  });

  it("takes an empty text for an empty text where the default is another", () => {
    const greeting = [parameter("greeting", "str", { default: "Hello" })];
    expect(parsed(greeting, { greeting: "" }).params).toEqual({ greeting: "" });
    expect(parsed(greeting, {}).params).toEqual({});
  });

  it("reads what textsOf wrote", () => {
    const params = { user_id: "12", top_k: 2, tags: ["x"], strict: false };
    expect(parsed(parameters, textsOf(parameters, params)).params).toEqual(params);
  });
});

describe("objectOf", () => {
  it.each([null, "", "[1]", "{", "null", '"a"'])("takes %s for an empty object", (json) => {
    expect(objectOf(json)).toEqual({});
  });

  it("reads an object", () => {
    expect(objectOf('{"a": 1}')).toEqual({ a: 1 });
  });
});
