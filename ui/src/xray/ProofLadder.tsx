import { IconCheck, IconMinus, IconX } from "@tabler/icons-react";

import type { Check } from "@verifier/verify.mjs";
import { Skeleton, StateWord } from "~/design";

import { useKeys } from "./keys";
import { standingOf } from "./standing";
import type { Answer } from "./verification";
import css from "./Proof.module.css";

const STEPS: readonly (readonly [Check["check"], string])[] = [
  ["hash", "hash"],
  ["signature", "signature"],
  ["disclosures", "disclosures"],
  ["content", "content"],
  ["reassembly", "re-assembly"],
];

/** The steps of the proof, each with its result. */
export function ProofLadder({ answer }: { answer: Answer | null }) {
  const keys = useKeys();
  if (answer === null) return <Skeleton lines={STEPS.length} />;
  if ("problem" in answer) {
    return (
      <p role="alert" className={css.problem}>
        <StateWord state="failed">Not checked</StateWord> <bdi>{answer.problem}</bdi>
      </p>
    );
  }
  const { open } = standingOf(answer.report, keys);
  const results = new Map(answer.report.checks.map((each) => [each.check, each]));
  return (
    <>
      <ol className={css.ladder}>
        {STEPS.map(([step, name]) => {
          const { ok = null, detail = "" } = results.get(step) ?? {};
          return (
            <li key={step} data-ok={String(ok)}>
              <Mark ok={ok} />
              <span className={css.step}>{name}</span>
              <bdi className={css.detail}>{brief(detail)}</bdi>
            </li>
          );
        })}
      </ol>
      <p className={css.verdict} role="status">
        {answer.verdict}
      </p>
      {open !== null && <p className={css.open}>{open}</p>}
    </>
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
