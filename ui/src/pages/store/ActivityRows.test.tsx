import { screen } from "@testing-library/react";
import { expect, it } from "vitest";

import type { Schema } from "~/api/client";
import { shown } from "~/testing/page";

import { ActivityRows } from "./ActivityRows";

function card(error: string | null) {
  const activity = {
    values: null,
    schedule: { last_due: "2026-11-16T10:00:00Z", next_due: "2026-11-16T11:00:00Z" },
    refresh_failure: { since: "2026-11-16T09:00:00Z", error },
    last_run_at: null,
    dead_letters: null,
  };
  const feature = { freshness_sla_ms: null };
  return { name: "stock", feature, activity } as unknown as Schema<"DeclarationCard">;
}

it("shows the error of a scheduled refresh", async () => {
  shown(<ActivityRows card={card("ConnectionError: the warehouse is down")} />, {});
  expect(await screen.findByText("ConnectionError: the warehouse is down")).toBeDefined();
  expect(screen.getByText("failing")).toBeDefined();
});

it("says who may see the error", async () => {
  shown(<ActivityRows card={card(null)} />, {});
  expect(await screen.findByText(/scope admin shows the error/)).toBeDefined();
});
