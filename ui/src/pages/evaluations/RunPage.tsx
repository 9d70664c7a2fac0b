import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link, useParams, useSearchParams } from "wouter";

import {
  Card,
  CopyAs,
  DataTable,
  Dim,
  Loaded,
  Mono,
  PageHead,
  Skeleton,
  StateText,
  StateWord,
  Tag,
  Time,
  UserText,
} from "~/design";
import { count, money, plural, shortened } from "~/design/format";

import { Answers } from "./Answers";
import { Contexts } from "./Contexts";
import css from "./Evaluations.module.css";
import { isRunning, reportOf, type Report } from "./queries";
import { commandOf, fidelityOf, growth, hrefOf, pricesIn, titleOf } from "./words";

/** What a run found: which contexts change, what caused it, and whether the gates hold. */
export default function RunPage() {
  const { cohort = "", run = "" } = useParams();
  const report = useQuery(reportOf(cohort, run));
  return (
    <>
      <PageHead
        tab={`${cohort} · Evaluations`}
        title={report.data === undefined ? "Evaluation" : titleOf(report.data)}
        subtitle={<About cohort={cohort} report={report.data} />}
        actions={
          <CopyAs
            call={{
              path: `/v1/evaluations/${encodeURIComponent(cohort)}?run_id=${encodeURIComponent(run)}`,
              cli: null,
              python: `evaluations.report(${JSON.stringify(cohort)}, ${JSON.stringify(run)})`,
            }}
          />
        }
      />
      <Loaded query={report} loading={<Skeleton lines={12} />}>
        {(data) => (
          <div className={css.cards}>
            {isRunning(data) && <Progress report={data} />}
            <Numbers report={data} />
            <div className={css.halves}>
              <Declarations report={data} />
              <Gates report={data} />
            </div>
            <Answers report={data} />
            <Reasons reasons={data.summary.reasons} />
            <Contexts cohort={cohort} report={data} />
          </div>
        )}
      </Loaded>
    </>
  );
}

function About({ cohort, report }: { cohort: string; report: Report | undefined }) {
  return (
    <>
      <Link href="/evaluations" className={css.back}>
        Evaluations
      </Link>{" "}
      · <UserText mono>{cohort}</UserText>
      {report !== undefined && (
        <>
          {" "}
          with <UserText mono>{commandOf(report.run)}</UserText>, compared with{" "}
          {report.run.base ? <UserText mono>{report.run.base}</UserText> : "the code of the cohort"}
          , started <Time at={report.run.started_at} />
        </>
      )}
    </>
  );
}

/** How far a run is; one that was interrupted stays where it is until it is started again. */
function Progress({ report: { run, summary } }: { report: Report }) {
  return (
    <Card title="Not finished" aside="the numbers below are of the contexts that are done">
      <progress
        className={css.progress}
        aria-label="Contexts done"
        value={summary.contexts}
        max={Math.max(1, run.count)}
      />
      <p className={css.note}>
        {count(summary.contexts)} of {plural(run.count, "context")}. If the run was interrupted, the
        same command continues it.
      </p>
    </Card>
  );
}

type NumberProps = { name: string; value: ReactNode; note: ReactNode };

function NumberTile({ name, value, note }: NumberProps) {
  return (
    <Card className={css.number}>
      <h2>{name}</h2>
      <p className={css.value}>{value}</p>
      <p className={css.note}>{note}</p>
    </Card>
  );
}

/** The counts of the run, each with its fidelity, and what tokens and the price become. */
function Numbers({ report: { summary } }: { report: Report }) {
  const { tokens_before, tokens_after, cost_before, cost_after } = summary;
  const largest = Math.max(cost_before, cost_after);
  const price = (nanoUsd: number) => money(nanoUsd, largest);
  return (
    <div className={css.numbers}>
      {(["identical", "changed", "failed", "skipped"] as const).map((status) => (
        <NumberTile
          key={status}
          name={`${status[0]?.toUpperCase() ?? ""}${status.slice(1)}`}
          value={count(summary[status])}
          note={noteOf(status, summary)}
        />
      ))}
      <NumberTile
        name="Tokens, median"
        value={count(tokens_after.p50)}
        note={
          <>
            {growth(tokens_before.p50, tokens_after.p50)}
            <br />
            p95 {count(tokens_after.p95)}, {growth(tokens_before.p95, tokens_after.p95)}
          </>
        }
      />
      <NumberTile
        name="Price"
        value={summary.priced === 0 ? <Dim>—</Dim> : price(cost_after)}
        note={
          summary.priced === 0 ? (
            "no context has a known price"
          ) : (
            <>
              {growth(cost_before, cost_after, price)}
              <br />
              of {plural(summary.priced, "context")}
            </>
          )
        }
      />
      <NumberTile
        name="Refused now"
        value={count(summary.new_refusals)}
        note={fidelityOf("new_refusals", summary.new_refusals, summary)}
      />
      <NumberTile
        name="Lost a required item"
        value={count(summary.lost_required)}
        note={fidelityOf("lost_required", summary.lost_required, summary)}
      />
    </div>
  );
}

type Counted = "identical" | "changed" | "failed" | "skipped";

function noteOf(status: Counted, summary: Report["summary"]): string {
  if (status === "failed") return summary.failed === 0 ? "" : "an error with the new code";
  if (status === "skipped") return summary.skipped === 0 ? "" : "cannot be assembled again";
  return fidelityOf(status, summary[status], summary);
}

type Change = Report["run"]["changes"][number];

/** The declarations that differ, with the contexts that each changed; a click shows these. */
function Declarations({ report: { run, summary } }: { report: Report }) {
  const [, setParams] = useSearchParams();
  const { unexplained = 0 } = summary.causes;
  const caused = ({ kind, name }: Change) => summary.causes[`${kind} ${name}`] ?? 0;
  const rows = [...run.changes].sort((one, two) => caused(two) - caused(one));
  return (
    <Card
      flush
      title="Changed declarations"
      aside={unexplained > 0 && <>{plural(unexplained, "difference")} unexplained</>}
    >
      {rows.length === 0 ? (
        <p className={css.none}>No declaration differs from the code of the cohort.</p>
      ) : (
        <DataTable
          label="Changed declarations"
          columns={[
            {
              head: "Declaration",
              cell: ({ kind, name, location, problem }) => (
                <div className={css.stack}>
                  <span>
                    <Dim>{kind}</Dim> <Mono>{name}</Mono>
                  </span>
                  {location && <span className={css.detail}>{location}</span>}
                  {problem && (
                    <StateText state="ageing">
                      <UserText>{problem}</UserText>
                    </StateText>
                  )}
                </div>
              ),
            },
            { head: "Change", cell: ({ change }) => <Tag>{change}</Tag> },
            {
              head: "Contexts",
              number: true,
              cell: (row) => {
                const label = `${row.kind} ${row.name}`;
                if (caused(row) === 0) return <Dim>0</Dim>;
                return (
                  <div className={css.stack}>
                    <button
                      type="button"
                      className={css.link}
                      aria-label={`${count(caused(row))}: show the contexts that ${label} changed`}
                      onClick={() =>
                        setParams({
                          cause: label,
                          status: summary.changed > 0 ? "changed" : "failed",
                        })
                      }
                    >
                      {count(caused(row))}
                    </button>
                    <span className={css.detail}>{fidelityOf(label, caused(row), summary)}</span>
                  </div>
                );
              },
            },
          ]}
          rows={rows}
          rowKey={({ kind, name }) => `${kind} ${name}`}
        />
      )}
    </Card>
  );
}

type Gate = Report["gates"][number];

/** The limits that the run must keep to, and the first contexts that break one. */
function Gates({ report: { run, gates } }: { report: Report }) {
  const broken = gates.filter(({ passed }) => !passed).length;
  const first = ({ contexts }: Gate) => (
    <span className={css.tags}>
      {contexts.slice(0, 3).map((id) => (
        <Link key={id} href={hrefOf(run.cohort, run.run_id, id)}>
          <Mono>{shortened(id)}</Mono>
        </Link>
      ))}
    </span>
  );
  return (
    <Card
      flush
      title="Gates"
      aside={gates.length > 0 && (broken === 0 ? "all hold" : `${count(broken)} broken`)}
    >
      {gates.length === 0 ? (
        <p className={css.none}>
          {run.finished_at
            ? 'None: [eval.gates] in headwater.toml sets limits, such as max_changed = "2%".'
            : "They are checked at the end."}
        </p>
      ) : (
        <DataTable
          label="Gates"
          columns={[
            {
              head: "Gate",
              cell: (gate) => (
                <div className={css.stack}>
                  <Mono>{gate.gate}</Mono>
                  {first(gate)}
                </div>
              ),
            },
            { head: "Limit", number: true, cell: ({ limit }) => pricesIn(limit) },
            { head: "Found", number: true, cell: ({ value }) => pricesIn(value) },
            {
              head: "Result",
              whole: true,
              cell: ({ passed }) => (
                <StateWord state={passed ? "fresh" : "failed"}>
                  {passed ? "holds" : "broken"}
                </StateWord>
              ),
            },
          ]}
          rows={gates}
          rowKey={({ gate }) => gate}
        />
      )}
    </Card>
  );
}

/** Why contexts are not exact, failed or were skipped. */
function Reasons({ reasons }: { reasons: Readonly<Record<string, number>> }) {
  const rows = Object.entries(reasons);
  if (rows.length === 0) return null;
  return (
    <Card flush title="What is not exact, failed or was skipped">
      <DataTable
        label="Reasons"
        columns={[
          { head: "Reason", cell: ([reason]) => <UserText>{reason}</UserText> },
          { head: "Contexts", number: true, cell: ([, number]) => count(number) },
        ]}
        rows={rows}
        rowKey={([reason]) => reason}
      />
    </Card>
  );
}
