import { useState } from "react";
import { Link } from "wouter";

import { useMayOpen } from "~/app/allowed";
import { Button, Mono, StateIcon, UserText } from "~/design";
import { count, shortened } from "~/design/format";

import type { Trace } from "./model";
import css from "./Violations.module.css";
import { reasonsOf, type Reason } from "./violations";

const SHOWN = 3;

/** Why a context was degraded or refused, the first few reasons at first. */
export function Violations({ trace }: { trace: Trace }) {
  const [isWhole, setWhole] = useState(false);
  const reasons = reasonsOf(trace);
  if (reasons.length === 0) return null;
  const state = trace.freshness_status === "refused" ? "failed" : "ageing";
  const head = trace.freshness_status === "refused" ? "Refused because" : "Degraded because";
  const shown = isWhole ? reasons : reasons.slice(0, SHOWN);
  const more = reasons.length - shown.length;
  return (
    <section className={css.why} data-state={state} aria-label={head}>
      <strong className={css.head}>
        <StateIcon state={state} />
        {head}
      </strong>
      <ul className={css.reasons}>
        {shown.map((reason, index) => (
          <li key={index}>
            <Line reason={reason} />
          </li>
        ))}
        {more > 0 && (
          <li>
            <Button look="quiet" onClick={() => setWhole(true)}>
              {count(more)} more
            </Button>
          </li>
        )}
      </ul>
    </section>
  );
}

function Line({ reason }: { reason: Reason }) {
  const { name, whose, words, usedBy, href } = reason;
  const mayOpen = useMayOpen();
  const subject = (
    <>
      <Mono>
        <bdi>{name}</bdi>
      </Mono>
      {whose !== null && (
        <>
          {" "}
          of <UserText>{shortened(whose, 16, 8)}</UserText>
        </>
      )}
    </>
  );
  return (
    <>
      {href !== null && mayOpen(href) ? <Link href={href}>{subject}</Link> : subject} {words}
      {usedBy !== null && (
        <span className={css.used}>
          {" "}
          (used by <Mono>{usedBy}</Mono>)
        </span>
      )}
    </>
  );
}
