import { expect, it } from "vitest";

import { redriveOf } from "./redrives";

it("knows the letter and the original event of a redrive", () => {
  expect(redriveOf("redrive:6:order:7")).toEqual({ letter: "6", event: "order:7" });
  expect(redriveOf("redrive:1763-0")).toEqual({ letter: "1763-0", event: null });
  expect(redriveOf("order:redrive:7")).toBeNull();
});
