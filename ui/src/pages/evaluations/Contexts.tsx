import { Link, useLocation, useSearchParams } from "wouter";

import {
  Button,
  Card,
  Choice,
  DataTable,
  Dim,
  Loaded,
  Mono,
  StateWord,
  Tag,
  Time,
  UserText,
  type Column,
} from "~/design";
import { count, plural, shortened } from "~/design/format";
import { signed } from "~/pages/compare/summary";

import css from "./Evaluations.module.css";
import { useContexts, type Evaluated, type Filters, type Report } from "./queries";
import { causesOf, hrefOf, KINDS } from "./words";

const STATUSES: readonly (readonly [Filters["status"], string])[] = [
  ["changed", "Changed"],
  ["failed", "Failed"],
  ["skipped", "Skipped"],
  ["identical", "Identical"],
];
const FIDELITIES: readonly (readonly [NonNullable<Filters["fidelity"]>, string])[] = [
  ["exact", "Exact"],
  ["approximate", "Approximate"],
];

/** Return the one of some options that a parameter of the address names. */
function chosen<T extends string>(
  params: URLSearchParams,
  name: string,
  options: readonly (readonly [T, string])[],
): T | undefined {
  return options.find(([value]) => value === params.get(name))?.[0];
}

/** Return the filters that an address has; without a status, the first one that occurs. */
export function filtersOf(params: URLSearchParams, summary: Report["summary"]): Filters {
  const kind = chosen(params, "kind", KINDS);
  const fidelity = chosen(params, "fidelity", FIDELITIES);
  const cause = params.get("cause");
  const [occurring] = STATUSES.find(([status]) => summary[status] > 0) ?? ["changed"];
  return {
    status: chosen(params, "status", STATUSES) ?? occurring,
    ...(kind && { kind }),
    ...(cause && { cause }),
    ...(fidelity && { fidelity }),
  };
}

/** The contexts of a run, filtered; one that is not identical opens with both sides, or why not. */
export function Contexts({ cohort, report }: { cohort: string; report: Report }) {
  const [params] = useSearchParams();
  const { run, summary } = report;
  const filters = filtersOf(params, summary);
  const contexts = useContexts(cohort, run.run_id, filters, summary.contexts);
  return (
    <Card
      flush
      title="Contexts"
      aside={`${matched(contexts, filters, summary)} of ${plural(summary.contexts, "context")}`}
    >
      <FilterBar filters={filters} report={report} />
      <Loaded query={contexts}>
        {({ pages }) => (
          <>
            <Table cohort={cohort} run={run.run_id} rows={pages.flatMap((page) => page.contexts)} />
            {contexts.hasNextPage && (
              <div className={css.more}>
                <Button
                  look="quiet"
                  busy={contexts.isFetchingNextPage}
                  onClick={() => void contexts.fetchNextPage()}
                >
                  Show more
                </Button>
              </div>
            )}
          </>
        )}
      </Loaded>
    </Card>
  );
}

/** Return how many contexts match: the summary counts statuses, and the pages all other filters. */
function matched(
  { data, hasNextPage }: ReturnType<typeof useContexts>,
  { status, ...others }: Filters,
  summary: Report["summary"],
): string {
  if (Object.keys(others).length === 0) return count(summary[status]);
  const read = data?.pages.reduce((sum, { contexts }) => sum + contexts.length, 0) ?? 0;
  return hasNextPage ? `more than ${count(read)}` : count(read);
}

function FilterBar({ filters, report }: { filters: Filters; report: Report }) {
  const [, setParams] = useSearchParams();
  const change = (name: string, value: string) =>
    setParams((known) => {
      const next = new URLSearchParams(known);
      if (value === "") next.delete(name);
      else next.set(name, value);
      return next;
    });
  const { kinds, causes } = report.summary;
  const counted = (text: string, number: number | undefined) =>
    number === undefined ? text : `${text} (${count(number)})`;
  return (
    <div className={css.filters} role="search" aria-label="Filter contexts">
      <Choice
        label="Status"
        value={filters.status}
        onChange={(value) => change("status", value)}
        options={STATUSES.map(([status, text]) => [status, counted(text, report.summary[status])])}
      />
      <Choice
        label="Difference"
        value={filters.kind ?? ""}
        onChange={(value) => change("kind", value)}
        options={[
          ["", "Any"],
          ...KINDS.filter(([kind]) => kind in kinds || kind === filters.kind).map(
            ([kind, text]) => [kind, counted(text, kinds[kind])] as const,
          ),
        ]}
      />
      <Choice
        label="Cause"
        value={filters.cause ?? ""}
        onChange={(value) => change("cause", value)}
        options={[
          ["", "Any"],
          ...[...new Set([...Object.keys(causes), ...(filters.cause ? [filters.cause] : [])])].map(
            (cause) => [cause, counted(cause, causes[cause])] as const,
          ),
        ]}
      />
      <Choice
        label="Fidelity"
        value={filters.fidelity ?? ""}
        onChange={(value) => change("fidelity", value)}
        options={[["", "Any"], ...FIDELITIES]}
      />
    </div>
  );
}

type TableProps = { cohort: string; run: string; rows: readonly Evaluated[] };

function Table({ cohort, run, rows }: TableProps) {
  const [, navigate] = useLocation();
  if (rows.length === 0) return <p className={css.none}>No context matches.</p>;
  const hasError = rows.some(({ error }) => error);
  const hrefFor = ({ context_id, status }: Evaluated) =>
    status === "identical" ? `/records/${context_id}` : hrefOf(cohort, run, context_id);
  const columns: Column<Evaluated>[] = [
    {
      head: "Context",
      cell: (row) => (
        <div className={css.stack}>
          <Link href={hrefFor(row)} onClick={(event) => event.stopPropagation()}>
            <Mono>{shortened(row.context_id)}</Mono>
          </Link>
          <span className={css.detail}>
            <UserText>{row.name}</UserText> <Time at={row.created_at} show="recent" />
          </span>
        </div>
      ),
    },
    {
      head: hasError ? "Why" : "Difference",
      width: "32%",
      cell: (row) => (row.error ? <UserText>{row.error}</UserText> : <Difference context={row} />),
    },
    {
      head: "Cause",
      secondary: true,
      cell: (row) => (
        <div className={css.stack}>
          {causesOf(row).map((cause) => (
            <UserText key={cause}>{cause}</UserText>
          ))}
        </div>
      ),
    },
    { head: "Fidelity", secondary: true, cell: (row) => <FidelityOf context={row} /> },
    {
      head: "Tokens",
      number: true,
      cell: ({ tokens_before, tokens_after, status }) =>
        status === "changed" || status === "identical" ? (
          <span title={`${count(tokens_before)} before, ${count(tokens_after)} after`}>
            {tokens_before === tokens_after ? <Dim>±0</Dim> : signed(tokens_after - tokens_before)}
          </span>
        ) : (
          <Dim>—</Dim>
        ),
    },
  ];
  return (
    <DataTable
      label="Contexts of the run"
      columns={columns}
      rows={rows}
      rowKey={({ context_id }) => context_id}
      onOpen={(row) => navigate(hrefFor(row))}
    />
  );
}

/** How a context differs: items gained and lost, and the other kinds of differences. */
function Difference({ context: { kinds, gained, lost, cut, values } }: { context: Evaluated }) {
  const counts: Record<string, number> = { gained, lost, cut, values: values.length };
  return (
    <span className={css.tags} title={values.join(", ") || undefined}>
      {kinds.map((kind) => (
        <Tag key={kind}>
          {kind === "values"
            ? plural(values.length, "value")
            : counts[kind]
              ? `${count(counts[kind])} ${kind}`
              : kind}
        </Tag>
      ))}
    </span>
  );
}

function FidelityOf({ context: { fidelity, reasons, status } }: { context: Evaluated }) {
  if (status === "failed" || status === "skipped") return <Dim>—</Dim>;
  if (fidelity === "exact") return <StateWord state="fresh">exact</StateWord>;
  return (
    <div className={css.stack}>
      <StateWord state="ageing">approximate</StateWord>
      {reasons[0] && <span className={css.detail}>{reasons[0]}</span>}
    </div>
  );
}
