import { stateOfAge } from "~/design";
import { duration } from "~/design/format";

import css from "./AgeBar.module.css";

/** An age as a part of its limit: the line is the SLA. */
export function AgeBar({ ageMs, slaMs }: { ageMs: number | null; slaMs: number }) {
  const state = stateOfAge(ageMs, slaMs);
  const share = ageMs === null ? 0 : Math.min(1, ageMs / slaMs);
  return (
    <span className={css.row}>
      <span className={css.bar} aria-hidden>
        <span className={css.fill} data-state={state} style={{ width: `${share * 100}%` }} />
      </span>
      <span className={css.words}>
        {ageMs === null ? "no moment" : duration(ageMs)} of {duration(slaMs)} SLA
      </span>
    </span>
  );
}
