import { useQuery } from "@tanstack/react-query";
import { Fragment } from "react";
import { Link, useLocation } from "wouter";

import type { Schema } from "~/api/client";
import {
  Card,
  CopyAs,
  DataTable,
  Dim,
  Empty,
  Loaded,
  Mono,
  PageHead,
  Skeleton,
  StateWord,
  Time,
  UserText,
  type Column,
} from "~/design";
import { count, inline, plural } from "~/design/format";

import css from "./Evaluations.module.css";
import { evaluations, type Cohort } from "./queries";
import { hrefOf } from "./words";

type Run = Schema<"ListedRun">;

const FREEZE = "headwater eval freeze last-month --context support --since 30d";
const RUN = "headwater eval run last-month --file features.py";

/** The frozen cohorts of recorded contexts, and what changed code makes of them. */
export default function EvaluationsPage() {
  const listed = useQuery(evaluations);
  return (
    <>
      <PageHead
        tab="Evaluations"
        title="Evaluations"
        subtitle="Recorded contexts, assembled again with changed code and only what was known at their time."
        actions={
          <CopyAs call={{ path: "/v1/evaluations", cli: null, python: "evaluations.list()" }} />
        }
      />
      <Loaded
        query={listed}
        loading={
          <Card title="Cohorts">
            <Skeleton lines={6} />
          </Card>
        }
      >
        {({ cohorts, more }) =>
          cohorts.length === 0 ? (
            <Card>
              <Empty title="Nothing was evaluated yet" command={`${FREEZE}\n${RUN}`}>
                If your next change had been live last month, what would the model have been shown?
                Freeze a cohort of recorded contexts, then run it with the changed features file, in
                the folder of the server.
              </Empty>
            </Card>
          ) : (
            <div className={css.cards}>
              {cohorts.map((cohort) => (
                <CohortCard key={cohort.name} cohort={cohort} />
              ))}
              {more > 0 && <Dim>{plural(more, "older cohort")} not shown</Dim>}
            </div>
          )
        }
      </Loaded>
    </>
  );
}

function CohortCard({ cohort }: { cohort: Cohort }) {
  const [, navigate] = useLocation();
  const columns: Column<Run>[] = [
    {
      head: "Run",
      cell: ({ run_id }) => (
        <Link href={hrefOf(cohort.name, run_id)} onClick={(event) => event.stopPropagation()}>
          <Mono>{run_id.slice(0, 12)}</Mono>
        </Link>
      ),
    },
    { head: "File", secondary: true, cell: ({ file }) => <UserText mono>{file}</UserText> },
    {
      head: "Started",
      whole: true,
      cell: ({ started_at }) => <Time at={started_at} show="recent" />,
    },
    { head: "Contexts", number: true, secondary: true, cell: ({ contexts }) => count(contexts) },
    { head: "Changed", number: true, cell: ({ changed }) => numberOf(changed) },
    { head: "Failed", number: true, secondary: true, cell: ({ failed }) => numberOf(failed) },
    { head: "Gates", whole: true, cell: (run) => <Gates run={run} /> },
  ];
  return (
    <Card flush title={<UserText mono>{cohort.name}</UserText>} aside={<Chosen cohort={cohort} />}>
      {cohort.runs.length === 0 ? (
        <Empty
          title="Not evaluated yet"
          command={`headwater eval run ${cohort.name} --file features.py`}
        />
      ) : (
        <DataTable
          label={`Runs of ${cohort.name}`}
          columns={columns}
          rows={cohort.runs}
          rowKey={({ run_id }) => run_id}
          onOpen={({ run_id }) => navigate(hrefOf(cohort.name, run_id))}
        />
      )}
    </Card>
  );
}

function numberOf(value: number | null | undefined) {
  return value === null || value === undefined ? <Dim>—</Dim> : count(value);
}

function Gates({ run }: { run: Run }) {
  if (!run.finished_at) return <StateWord state="unknown">not finished</StateWord>;
  return run.passed ? (
    <StateWord state="fresh">hold</StateWord>
  ) : (
    <StateWord state="failed">broken</StateWord>
  );
}

/** How many contexts a cohort has, and how they were chosen. */
function Chosen({ cohort: { contexts, chosen, created_at } }: { cohort: Cohort }) {
  if (created_at === null) return <StateWord state="ageing">its file is damaged or gone</StateWord>;
  const options = Object.entries(chosen ?? {}).filter(([, value]) => Boolean(value));
  return (
    <span className={css.chosen}>
      {plural(contexts ?? 0, "context")}
      {options.length > 0 && (
        <span>
          {options.map(([name, value], index) => (
            <Fragment key={name}>
              {index > 0 && ", "}
              <Option name={name} value={value} />
            </Fragment>
          ))}
        </span>
      )}
      <span>
        frozen <Time at={created_at} />
      </span>
    </span>
  );
}

/** The ends of the span of time that contexts were chosen from, as they are named elsewhere. */
const TIMES: Readonly<Record<string, string>> = { start: "since", end: "until" };

function Option({ name, value }: { name: string; value: unknown }) {
  const time = TIMES[name];
  if (time !== undefined && typeof value === "string") {
    return (
      <>
        {time} <Time at={value} show="exact" />
      </>
    );
  }
  return <UserText>{`${name.replaceAll("_", " ")} ${inline(value)}`}</UserText>;
}
