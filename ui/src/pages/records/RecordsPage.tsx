import { useQuery } from "@tanstack/react-query";
import { IconFilter, IconRefresh, IconX } from "@tabler/icons-react";
import { useMemo, useState } from "react";
import { useSearchParams } from "wouter";

import { declarations } from "~/api/queries";
import { Button, Choice, CopyAs, Empty, Field, IconButton, PageHead } from "~/design";
import { percent, plural } from "~/design/format";

import { ExportButtons } from "./ExportButtons";
import {
  callOf,
  changed,
  filtersOf,
  hasOutcomes,
  isNarrowed,
  OUTCOMES,
  problemOf,
  PROVENANCE,
  queryOf,
  RANGES,
  STATUSES,
  type Change,
  type Filters,
} from "./filters";
import { Found } from "./Found";
import { OverTime, statusTotal, totalOf } from "./OverTime";
import { useHistogram, useRecords, type Histogram } from "./queries";
import css from "./RecordsPage.module.css";
import { Ticked, useTicks } from "./Ticked";
import { useDebounced } from "./useDebounced";

/** All recorded contexts: found by time, filters and the beginning of an id or hash. */
export default function RecordsPage() {
  const [params, setParams] = useSearchParams();
  const filters = useMemo(() => filtersOf(params, "7d"), [params]);
  const [now] = useState(Date.now);
  const query = useMemo(() => queryOf(filters, now), [filters, now]);
  const records = useRecords(filters);
  const counted = useHistogram(filters);
  const ticks = useTicks();
  const change: Change = (changes, options) =>
    setParams((known) => changed(known, changes), options);
  const refresh = () => {
    void records.refetch();
    void counted.refetch();
  };
  return (
    <>
      <PageHead
        tab="Records"
        title="Records"
        subtitle={<Summary filters={filters} counted={counted.data} />}
        actions={
          <>
            <IconButton label="Refresh" onClick={refresh}>
              <IconRefresh size={17} />
            </IconButton>
            <ExportButtons query={query} />
            <CopyAs call={callOf(query)} />
          </>
        }
      />
      <Bar filters={filters} change={change} />
      <OverTime counted={counted} filters={filters} change={change} />
      <Found
        label="Recorded contexts"
        place={`records-${params.toString()}`}
        records={records}
        total={totalOf(counted.data)}
        ticks={ticks}
        nothing={<Nothing filters={filters} change={change} />}
      />
      <Ticked ticks={ticks} />
    </>
  );
}

/** One sentence about what is listed. */
function Summary({ filters, counted }: { filters: Filters; counted: Histogram | undefined }) {
  if (counted === undefined) return <>Counting contexts…</>;
  const degraded = statusTotal(counted, "degraded");
  return (
    <>
      {counted.counted_from === null ? "" : "More than "}
      {plural(counted.contexts, "context")} {when(filters)}
      {degraded > 0 && `, ${percent(degraded / counted.contexts)} degraded`}.
      {counted.contexts > 1 && " Tick two to compare them."}
    </>
  );
}

function when({ start, end, range }: Filters): string {
  if (start !== undefined || end !== undefined) return "in the selected time";
  const name = RANGES.find(([key]) => key === range)?.[1] ?? "";
  return range === "all" ? "of all time" : `in the ${name.toLowerCase()}`;
}

/** The filters. Texts are applied while they are typed. */
function Bar({ filters, change }: { filters: Filters; change: Change }) {
  const { data } = useQuery(declarations);
  const declared = data?.contexts.map(({ name }) => name) ?? [];
  // Contexts that were recorded from elsewhere, or are declared no more, have a name too.
  const names = [...new Set([...(filters.name === undefined ? [] : [filters.name]), ...declared])];
  const [isOpen, setOpen] = useState(false);
  const hasAnswers = isOpen || hasOutcomes(filters);
  return (
    <div className={css.bar} role="search" aria-label="Filters">
      <div className={css.wide}>
        <Typed
          label="Id or hash"
          placeholder="Beginning of an id or hash"
          value={filters.prefix}
          onChange={(prefix) => change({ prefix }, TYPING)}
        />
      </div>
      {data !== undefined && declared.length === 0 ? (
        <Typed
          label="Context"
          placeholder="Any context"
          value={filters.name}
          onChange={(name) => change({ name }, TYPING)}
        />
      ) : (
        <Choice
          label="Context"
          value={filters.name ?? ""}
          onChange={(name) => change({ name })}
          options={[["", "Any context"], ...names.map((name) => [name, name] as const)]}
        />
      )}
      <Choice
        label="Freshness"
        value={filters.freshness_status ?? ""}
        onChange={(status) => change({ freshness_status: status })}
        options={[["", "Any freshness"], ...STATUSES.map((status) => [status, status] as const)]}
      />
      <Typed
        label="Entity id"
        placeholder="Any entity"
        value={filters.entity_id}
        onChange={(entity_id) =>
          change({ entity_id, ...(entity_id === undefined && { entity: undefined }) }, TYPING)
        }
      />
      <Typed
        label="Caller"
        placeholder="Any key"
        value={filters.caller}
        onChange={(caller) => change({ caller }, TYPING)}
      />
      <TimeChoice filters={filters} change={change} />
      <div className={css.buttons}>
        {!hasAnswers && (
          <Button
            look="quiet"
            icon={<IconFilter size={14} aria-hidden />}
            onClick={() => setOpen(true)}
          >
            Answers
          </Button>
        )}
        <Clear
          filters={filters}
          change={(none) => {
            setOpen(false);
            change(none);
          }}
        />
      </div>
      {hasAnswers && <AnswerFilters filters={filters} change={change} isNew={isOpen} />}
    </div>
  );
}

/** Removes all filters, if there are any. */
function Clear({ filters, change }: { filters: Filters; change: Change }) {
  const isExact = filters.start !== undefined || filters.end !== undefined;
  if (!isNarrowed(filters) && !isExact) return null;
  return (
    <Button look="quiet" icon={<IconX size={14} aria-hidden />} onClick={() => change(NO_FILTERS)}>
      Clear
    </Button>
  );
}

const ANSWERS = [
  ["score", "Score", "helpful=false, helpful<3"],
  ["label", "Label of a score", "rude, tone=rude"],
  ["answer_model", "Model that answered", "Any model"],
  ["error", "Error of the call", "RateLimitError"],
] as const;

type AnswerProps = { filters: Filters; change: Change; isNew: boolean };

/** Filters by what became of a context. */
function AnswerFilters({ filters, change, isNew }: AnswerProps) {
  return (
    <div className={css.answers} role="group" aria-label="What became of it">
      {ANSWERS.map(([name, label, placeholder], index) => (
        <Typed
          key={name}
          label={label}
          placeholder={placeholder}
          value={filters[name]}
          problemOf={(text) => problemOf(name, text)}
          autoFocus={isNew && index === 0}
          onChange={(text) => change({ [name]: text }, TYPING)}
        />
      ))}
    </div>
  );
}

/** The time of a list: a range before now, or the one that was marked in the chart. */
export function TimeChoice({ filters, change }: { filters: Filters; change: Change }) {
  const isExact = filters.start !== undefined || filters.end !== undefined;
  return (
    <Choice
      label="Time"
      value={isExact ? "exact" : filters.range}
      onChange={(range) => range === "exact" || change({ range, start: undefined, end: undefined })}
      options={[
        ...(isExact ? [["exact", "Selected range"] as const] : []),
        ...RANGES.map(([key, label]) => [key, label] as const),
      ]}
    />
  );
}

const TYPING = { replace: true };

const NO_FILTERS: Parameters<Change>[0] = {
  ...Object.fromEntries([...PROVENANCE, ...OUTCOMES].map((name) => [name, undefined])),
  prefix: undefined,
  name: undefined,
  freshness_status: undefined,
  caller: undefined,
  start: undefined,
  end: undefined,
};

type TypedProps = {
  label: string;
  placeholder: string;
  value: string | undefined;
  onChange: (value: string | undefined) => void;
  /** Why a text cannot be applied; it is then shown, and the filter stays as it was. */
  problemOf?: (text: string) => string | null;
  autoFocus?: boolean;
};

/** A field whose text is applied a moment after the last key. */
function Typed({ label, placeholder, value = "", onChange, problemOf, autoFocus }: TypedProps) {
  const problemIn = (typed: string) =>
    typed.trim() === "" ? null : (problemOf?.(typed.trim()) ?? null);
  const [text, setText] = useDebounced(value, (next) => {
    const isValid = problemIn(next) === null;
    if (isValid) onChange(next.trim() || undefined);
    return isValid;
  });
  return (
    <Field
      label={label}
      type="search"
      placeholder={placeholder}
      value={text}
      problem={problemIn(text)}
      autoFocus={autoFocus}
      onChange={(event) => setText(event.target.value)}
      onKeyDown={(event) => {
        if (event.key === "Escape") setText("");
      }}
    />
  );
}

/** Why the list is empty, and what to do. */
function Nothing({ filters, change }: { filters: Filters; change: Change }) {
  if (isNarrowed(filters) || filters.start !== undefined || filters.end !== undefined) {
    return (
      <Empty title="No context matches">
        No context in this time matches all filters.{" "}
        <Button onClick={() => change(NO_FILTERS)}>Clear the filters</Button>
      </Empty>
    );
  }
  if (filters.range !== "all") {
    return (
      <Empty title="No context in this time">
        There may be older ones.{" "}
        <Button onClick={() => change({ range: "all" })}>Show all time</Button>
      </Empty>
    );
  }
  return (
    <Empty
      title="No context was recorded yet"
      command="headwater context assemble NAME user_id=ada"
    >
      Every context that is assembled leaves a record of what the model was given, and why. Assemble
      one in the playground, or with this command:
    </Empty>
  );
}
