import { IconCheck, IconMinus, IconX } from "@tabler/icons-react";

import type { Check, Report } from "@verifier/verify.mjs";
import { Skeleton, StateWord } from "~/design";
import { shortened } from "~/design/format";

import { useKeys } from "./keys";
import { standingOf } from "./standing";
import type { Answer } from "./verification";
import css from "./Proof.module.css";

const NAMES: Partial<Record<Check["check"], string>> = { reassembly: "re-assembly" };
const STEPS = 5;

/** The steps of the proof, each with its result: of a record, then of its outcomes. */
export function ProofLadder({ answer }: { answer: Answer | null }) {
  const keys = useKeys();
  if (answer === null) return <Skeleton lines={STEPS} />;
  if ("problem" in answer) {
    return (
      <p role="alert" className={css.problem}>
        <StateWord state="failed">Not checked</StateWord> <bdi>{answer.problem}</bdi>
      </p>
    );
  }
  const { open } = standingOf(answer.report, keys);
  const { outcomes = [] } = answer.report;
  return (
    <>
      <Steps report={answer.report} />
      {outcomes.length > 0 && (
        <ul className={css.outcomes} aria-label="Outcomes">
          {outcomes.map((outcome, at) => (
            <li key={at}>
              <OutcomeSteps outcome={outcome} />
            </li>
          ))}
        </ul>
      )}
      <p className={css.verdict} role="status">
        {answer.verdict}
      </p>
      {open !== null && <p className={css.open}>{open}</p>}
    </>
  );
}

/** The steps of an outcome, collapsed unless one of them failed. */
function OutcomeSteps({ outcome }: { outcome: Report }) {
  return (
    <details open={!outcome.ok}>
      <summary>
        <Mark ok={outcome.ok} /> Outcome <bdi>{shortened(outcome.outcome_id ?? "")}</bdi>
      </summary>
      <Steps report={outcome} />
    </details>
  );
}

function Steps({ report }: { report: Report }) {
  return (
    <ol className={css.ladder}>
      {report.checks.map(({ check, ok, detail }) => (
        <li key={check} data-ok={String(ok)}>
          <Mark ok={ok} />
          <span className={css.step}>{NAMES[check] ?? check}</span>
          <bdi className={css.detail}>{brief(detail)}</bdi>
        </li>
      ))}
    </ol>
  );
}

function Mark({ ok }: { ok: boolean | null }) {
  if (ok === null)
    return <IconMinus size={15} className={css.unchecked} aria-label="not checked" />;
  return ok ? (
    <IconCheck size={15} className={css.holds} aria-label="holds" />
  ) : (
    <IconX size={15} className={css.broken} aria-label="broken" />
  );
}

/** Hashes are shortened in the middle; a long list of problems is cut. */
function brief(detail: string): string {
  const hashes = detail.replace(/sha256:([0-9a-f]{8})[0-9a-f]{50}([0-9a-f]{6})/g, "sha256:$1…$2");
  return hashes.length > 600 ? `${hashes.slice(0, 600)} …` : hashes;
}
