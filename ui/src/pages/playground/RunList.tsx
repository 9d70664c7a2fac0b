import { useCan } from "~/api/me";
import { ButtonLink, StateIcon, type State } from "~/design";
import { count, duration, plural } from "~/design/format";

import css from "./Playground.module.css";
import type { Run } from "./runs";

type Props = { runs: readonly Run[]; shown: string | null; onShow: (run: Run) => void };

const STATES: Readonly<Record<Run["result"]["freshness_status"], State>> = {
  guaranteed: "fresh",
  degraded: "ageing",
  refused: "failed",
};

/** The runs of this tab, newest first; one of them is shown, and can be compared with the last. */
export function RunList({ runs, shown, onShow }: Props) {
  const mayCompare = useCan("GET /v1/context/{id}/diff/{other}");
  if (runs.length === 0) return null;
  const place = runs.findIndex(({ result }) => result.context_id === shown);
  const [before, current] = [runs[place - 1], runs[place]];
  const pair =
    before &&
    current &&
    new URLSearchParams({ a: before.result.context_id, b: current.result.context_id }).toString();
  return (
    <div className={css.runs}>
      <ul aria-label="Runs" className={css.chips}>
        {[...runs].reverse().map((run) => (
          <li key={run.number}>
            <button
              type="button"
              className={css.chip}
              aria-pressed={run === current}
              onClick={() => onShow(run)}
            >
              <span className={css.number}>{run.number}</span>
              {plural(run.result.tokens, "token")}
              <span className={css.status}>
                <StateIcon state={STATES[run.result.freshness_status]} size={12} />
                {run.result.freshness_status}
              </span>
              {duration(run.took)}
              {overridesOf(run)}
            </button>
          </li>
        ))}
      </ul>
      {mayCompare && pair !== undefined && (
        <ButtonLink href={`/compare?${pair}`}>Compare with before</ButtonLink>
      )}
    </div>
  );
}

function overridesOf({ limits: { maxTokens, slaMs } }: Run): string {
  return [
    maxTokens === null ? "" : ` · ≤ ${count(maxTokens)}`,
    slaMs === null ? "" : ` · SLA ${duration(slaMs)}`,
  ].join("");
}
