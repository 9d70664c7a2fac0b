import { expect, it } from "vitest";

import type { Report } from "./queries";
import {
  chanceOf,
  commandOf,
  meaningOf,
  fidelityOf,
  growth,
  hrefOf,
  pricesIn,
  titleOf,
} from "./words";

const SPREAD = { p50: 60, p95: 72, total: 240 };
const REPORT: Report = {
  run: {
    run_id: "5f0c",
    cohort: "last-month",
    cohort_hash: "",
    count: 4,
    file: "features.py",
    base: "the cohort",
    options: {},
    changes: [],
    started_at: "2026-11-18T00:00:00Z",
    finished_at: "2026-11-18T00:01:00Z",
    portion: 250,
  },
  summary: {
    contexts: 4,
    identical: 4,
    changed: 0,
    failed: 0,
    skipped: 0,
    text_changed: 0,
    fidelity: { exact: 4 },
    approximate: { changed: 1 },
    reasons: {},
    kinds: {},
    causes: {},
    dead_letters: {},
    tokens_before: SPREAD,
    tokens_after: SPREAD,
    cost_before: 0,
    cost_after: 0,
    priced: 0,
    new_refusals: 0,
    lost_required: 0,
  },
  gates: [],
  baseline: null,
  answers: null,
};

const { run, summary } = REPORT;

it("says in one sentence what a run found, or how far it is", () => {
  expect(titleOf(REPORT)).toBe("No context changes");
  expect(titleOf({ ...REPORT, summary: { ...summary, changed: 2, failed: 1 } })).toBe(
    "2 of 4 contexts change, 1 fail",
  );
  expect(titleOf({ ...REPORT, run: { ...run, finished_at: null, count: 9 } })).toBe(
    "4 of 9 contexts done",
  );
});

it("shows the fidelity next to each number and averages nothing away", () => {
  expect(fidelityOf("identical", 4, summary)).toBe("all exact");
  expect(fidelityOf("changed", 3, summary)).toBe("1 approximate");
  expect(fidelityOf("changed", 1, summary)).toBe("all approximate");
  expect(fidelityOf("changed", 0, summary)).toBe("");
});

it("writes growth, options and addresses", () => {
  expect(growth(100, 105)).toBe("before 100 (+5 %)");
  expect(growth(100, 100)).toBe("as before");
  expect(growth(0, 5)).toBe("before 0");
  const options = { max_tokens: 60, index: ["help@3", "faq@1"], model: null };
  expect(commandOf({ file: "app.py", options })).toBe(
    "app.py --max-tokens 60 --index help@3 --index faq@1",
  );
  expect(commandOf({ file: "app.py", options: {} })).toBe("app.py");
  expect(hrefOf("a b", "5f")).toBe("/evaluations/a%20b/5f");
  expect(hrefOf("a", "5f", "01")).toBe("/compare?cohort=a&run=5f&context=01");
});

it("writes the prices of gates as elsewhere, both sides in one unit", () => {
  expect(pricesIn("0.001350 USD → 0.002000 USD")).toBe("0.14 ¢ → 0.2 ¢");
  expect(pricesIn("0.980000 USD → 1,001.05 USD")).toBe("$ 0.98 → $ 1001.05");
  expect(pricesIn("7 of 20 (35.0%)")).toBe("7 of 20 (35.0%)");
});

it("says whether a score moved, and whether that may be chance", () => {
  expect([0.5, 0.0312, 0.00005].map(chanceOf)).toEqual(["0.5", "0.031", "< 0.001"]);
  expect(meaningOf({ before: 1, after: 0.5, p_value: 0.01 })).toBe("lower");
  expect(meaningOf({ before: 1, after: 2, p_value: 0.5 })).toBe("higher, which may be chance");
  expect(meaningOf({ before: 1, after: 1, p_value: 1 })).toBe("the same");
});
