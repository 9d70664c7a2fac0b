import { screen, within } from "@testing-library/react";
import { expect, it } from "vitest";

import type { Schema } from "~/api/client";
import { shown } from "~/testing/page";

import { Objectives } from "./Tables";

const OBJECTIVE: Schema<"ObjectiveState"> = {
  kind: "feature",
  name: "total_spend",
  objective: "freshness",
  target: 0.999,
  total: 12_000,
  bad: 96,
  burn_rate: 8,
  burn_rate_5m: 8,
};

it("shows each objective with its misses and how fast it burns", async () => {
  const unused = { ...OBJECTIVE, kind: "context", name: "prompt", objective: "latency" } as const;
  const none = { ...unused, total: 0, bad: 0, burn_rate: null, burn_rate_5m: null };
  shown(<Objectives objectives={[OBJECTIVE, none]} />, {});
  const table = await screen.findByRole("table", { name: "Objectives" });
  const rows = within(table)
    .getAllByRole("row")
    .slice(1)
    .map((row) => within(row).getAllByRole("cell"));
  const texts = rows.map((cells) => cells.map((cell) => cell.textContent));
  expect(texts).toEqual([
    ["feature total_spend", "freshness", "99.9 %", "96 of 12,000", "8"],
    ["context prompt", "latency", "99.9 %", "0 of 0", "—"],
  ]);
});

it("shows nothing without objectives", () => {
  shown(<Objectives objectives={[]} />, {});
  expect(screen.queryByText(/Objectives/)).toBeNull();
});
