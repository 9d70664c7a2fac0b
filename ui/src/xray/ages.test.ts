import { expect, it } from "vitest";

import { axisOf } from "./ages";

it("places ages on a logarithmic axis, with room at both ends and few ticks", () => {
  const axis = axisOf([3, 300_000, 22_000_000]);
  expect(axis.at(3)).toBeGreaterThan(0);
  expect(axis.at(22_000_000)).toBeLessThan(1);
  expect(axis.at(300_000)).toBeGreaterThan(axis.at(3));
  expect(axis.ticks.length).toBeLessThanOrEqual(5);
  expect(axisOf([]).ticks.length).toBeGreaterThan(0);
  expect(axisOf([0]).at(0)).toBe(0);
});
