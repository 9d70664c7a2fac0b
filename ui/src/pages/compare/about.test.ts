import { expect, it } from "vitest";

import { aboutOf } from "./about";

type Trace = Parameters<typeof aboutOf>[0];

function trace(inputs: Record<string, unknown>, ...read: [string, string | null][]): Trace {
  const features = read.map(([entity, entity_id]) => ({ entity, entity_id }));
  return { inputs, features } as unknown as Trace;
}

it("prefers the entity that an input names", () => {
  const read = [
    ["Product", "lamp"],
    ["User", "7"],
  ] as [string, string][];
  expect(aboutOf(trace({ user_id: 7 }, ...read))).toEqual({ entity: "User", entity_id: "7" });
  expect(aboutOf(trace({}, ...read))).toEqual({ entity: "Product", entity_id: "lamp" });
});

it("finds none in a context that read no entity, or withholds it", () => {
  expect(aboutOf(trace({ question: "why" }))).toBeNull();
  expect(aboutOf(trace({ user_id: "ada" }, ["User", null]))).toBeNull();
});
