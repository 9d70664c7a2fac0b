import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";

import type { Schema } from "~/api/client";
import {
  Card,
  CopyAs,
  Empty,
  Loaded,
  PageHead,
  Skeleton,
  StateBadge,
  StateText,
  Time,
  UserText,
} from "~/design";
import { comparedContext } from "~/pages/evaluations/queries";
import { causesOf, hrefOf } from "~/pages/evaluations/words";

import css from "./ComparePage.module.css";
import { explanation, Side, SideBySide } from "./SideBySide";
import { changeOf, listed } from "./summary";

type Compared = Schema<"ComparedContext">;

/** A recorded context against the one that changed code gives, of a run of an evaluation. */
export function EvaluatedComparison({ cohort, run, id }: Record<"cohort" | "run" | "id", string>) {
  const compared = useQuery(comparedContext(cohort, run, id));
  return (
    <>
      <PageHead
        tab="Compare"
        title={compared.data ? titleOf(compared.data) : "Recorded against this change"}
        subtitle={
          <>
            <Link href={hrefOf(cohort, run)} className={css.back}>
              Evaluation of <UserText mono>{cohort}</UserText>
            </Link>
            {compared.data && <Why compared={compared.data} />}
          </>
        }
        actions={
          <CopyAs
            call={{
              path: `/v1${hrefOf(cohort, run)}/contexts/${encodeURIComponent(id)}`,
              cli: null,
              python: `evaluations.context(${[cohort, run, id].map((each) => JSON.stringify(each)).join(", ")})`,
            }}
          />
        }
      />
      <Loaded query={compared} loading={<Skeleton lines={12} />}>
        {(data) => <Both compared={data} />}
      </Loaded>
    </>
  );
}

function titleOf({ context: { status }, diff }: Compared): string {
  if (diff) return changeOf(diff);
  if (status === "failed") return "It fails with this change";
  return status === "skipped" ? "It cannot be assembled again" : "Recorded against this change";
}

/** The tokens of both sides, and the declarations that caused the difference. */
function Why({ compared: { context, diff } }: { compared: Compared }) {
  const causes = causesOf(context);
  return (
    <>
      {diff && ` · ${explanation(diff.tokens_before, diff.tokens_after)}`}
      {causes.length > 0 && (
        <>
          {" · caused by "} <UserText>{listed(causes)}</UserText>
        </>
      )}
    </>
  );
}

function Both({ compared }: { compared: Compared }) {
  const { context, before, after, diff, withheld } = compared;
  if (context.status === "failed" || context.status === "skipped")
    return <NotAssembled compared={compared} />;
  if (!before || !after || !diff) {
    return (
      <Card>
        <Empty
          title={withheld ? "Both sides are withheld" : "Nothing differs"}
          action={<Link href={`/records/${context.context_id}`}>Open its record</Link>}
        >
          <UserText>{withheld || "Both codes give the same context."}</UserText>
        </Empty>
      </Card>
    );
  }
  const isBase = context.compared_with === "base";
  return (
    <>
      <div className={css.sides}>
        <Side
          title={isBase ? "With the former code" : "Recorded"}
          id={context.context_id}
          trace={before}
        />
        <span className={css.arrow} aria-hidden>
          →
        </span>
        <Side title="With this change" trace={after}>
          <StateBadge state={context.fidelity === "approximate" ? "ageing" : "fresh"}>
            {context.fidelity}
          </StateBadge>
        </Side>
      </div>
      {context.reasons.map((reason) => (
        <p key={reason} className={css.reason}>
          <UserText>{reason}</UserText>
        </p>
      ))}
      <SideBySide diff={diff} one={before} two={after} />
    </>
  );
}

/** The error of a context that has no other side. */
function NotAssembled({ compared: { context } }: { compared: Compared }) {
  return (
    <div className={css.cards}>
      <Card title={context.status === "failed" ? "The error" : "Why it was skipped"}>
        <p className={css.error}>
          <StateText state={context.status === "failed" ? "failed" : "unknown"}>
            <UserText mono>{context.error}</UserText>
          </StateText>
        </p>
        <p>
          <Link href={`/records/${context.context_id}`} className={css.back}>
            What was recorded
          </Link>{" "}
          of <UserText>{context.name}</UserText>, <Time at={context.created_at} show="exact" />
        </p>
      </Card>
    </div>
  );
}
