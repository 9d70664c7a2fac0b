import { screen, within } from "@testing-library/react";
import { expect, it } from "vitest";

import { shown } from "~/testing/page";
import { gridsOf, type Feature } from "~/windows";

import { FamilyCard } from "./FamilyCard";
import type { EntityValue } from "./queries";

const HOUR = 3_600_000_000;

function family(aggregates: readonly string[], by: string | null) {
  const windows = [
    { window: "1h", span_us: HOUR, hop_us: HOUR / 60 },
    { window: "7d", span_us: 168 * HOUR, hop_us: 6 * HOUR },
  ];
  const members = windows.flatMap(({ window }) =>
    aggregates.map((aggregate) => ({
      name: `spend_${aggregate}_${window}`,
      window: { family: "spend", aggregate, window },
      windows: null,
    })),
  );
  const own = { name: "spend", window: null, windows: { windows, aggregates, by, members } };
  const [grid] = gridsOf([own, ...members] as unknown as Feature[]);
  if (grid === undefined) throw new Error("the family was not found");
  return grid;
}

const value = (feature: string, of: unknown, source: EntityValue["source"] = "online") =>
  ({
    feature,
    value: of,
    source,
    problem: null,
    is_fresh: null,
    violations: [],
  }) as unknown as EntityValue;

it("shows all windows of a family, with a link to each", async () => {
  const values = [
    value("spend_sum_1h", 0),
    value("spend_sum_7d", 1234.5),
    value("spend_max_1h", null, "missing"),
    value("spend_max_7d", 99.9),
  ];
  const grid = family(["sum", "max"], null);
  const units = new Map([["spend_sum_1h", "EUR"]]);
  shown(<FamilyCard grid={grid} units={units} values={values} selected={null} />, {});
  const table = await screen.findByRole("table", { name: "Windows of spend" });
  const rows = within(table).getAllByRole("row");
  expect(rows.map((row) => row.textContent)).toEqual([
    "Aggregate1h7d",
    "sum EUR0 spend_sum_1h1,234.5 spend_sum_7d",
    "max— spend_max_1h99.9 spend_max_7d",
  ]);
  const link = within(table).getByRole("link", { name: "1,234.5 spend_sum_7d" });
  expect(link.getAttribute("href")).toContain("feature=spend_sum_7d");
});

it("shows the keys of a keyed family below each aggregate, the rest as a number", async () => {
  const many = Object.fromEntries(Array.from({ length: 9 }, (_, at) => [`key ${at}`, at]));
  const values = [
    value("spend_sum_1h", { "key 3": 1 }),
    value("spend_sum_7d", { ...many, other: 70 }),
  ];
  const grid = family(["sum"], "category");
  shown(<FamilyCard grid={grid} units={new Map()} values={values} selected={null} />, {});
  const table = await screen.findByRole("table", { name: "Windows of spend" });
  const rows = within(table)
    .getAllByRole("row")
    .map((row) => row.textContent);
  expect(rows[1]).toBe("sum1 key spend_sum_1h10 keys spend_sum_7d");
  expect(rows.slice(2)).toEqual([
    "key 88",
    "key 77",
    "key 66",
    "key 55",
    "key 44",
    "key 313",
    "other70",
    "and 3 keys more",
  ]);
});
