import { screen } from "@testing-library/react";
import { expect, it } from "vitest";

import type { Schema } from "~/api/client";
import { shown } from "~/testing/page";

import { Tiles } from "./Tiles";

const SERIES = {
  end: "2026-11-16T10:00:00Z",
  step_seconds: 10,
  accepted_per_second: [0, 0],
  processed_per_second: [0, 0],
  waiting: [0, 7],
  oldest_seconds: [0, 0],
  dead_letters: [0, 23],
  contexts_per_minute: [0, 0],
  fresh_percent: [null, null],
  assembly_p99_ms: [null, null],
};

const overview = (now: { waiting: number | null; dead_letters: number | null }) =>
  ({ ...now, partitions: 4, contexts: [] }) as unknown as Schema<"Overview">;

it("shows the numbers that the title has, and not those of the newest sample", async () => {
  shown(<Tiles series={SERIES} overview={overview({ waiting: 8, dead_letters: 24 })} />, {});
  expect(await screen.findByLabelText(/^Dead letters: 24/)).toBeDefined();
  expect(screen.getByLabelText(/^Waiting: 8 events/)).toBeDefined();
});

it("shows the newest sample while the store does not answer", async () => {
  shown(<Tiles series={SERIES} overview={overview({ waiting: null, dead_letters: null })} />, {});
  expect(await screen.findByLabelText(/^Dead letters: 23/)).toBeDefined();
});
