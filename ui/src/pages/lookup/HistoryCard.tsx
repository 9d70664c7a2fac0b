import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useSearchParams } from "wouter";

import type { Schema } from "~/api/client";
import { ProblemError } from "~/api/problems";
import { Button, Card, CopyAs, ErrorPanel, Skeleton } from "~/design";
import { plural } from "~/design/format";
import { spanMs } from "~/windows";

import { HistoryChart } from "./HistoryChart";
import css from "./Lookup.module.css";
import { history, valueBefore } from "./queries";
import { StepList } from "./StepList";
import {
  drawnSegments,
  merged,
  RANGES,
  rangeFor,
  rangeOf,
  segments,
  startOf,
  stepKey,
  type Range,
} from "./steps";
import { whyNoHistory } from "./values";

type Props = {
  entity: string;
  id: string;
  feature: string;
  listing: Schema<"FeatureListing"> | undefined;
  isKeyed: boolean;
  /** The event types that change it. */
  triggers: readonly string[];
  /** The key of the step that was known when a record was made, if the address names a time. */
  recorded: string | null;
};

/** One value over time, and the events behind its steps. */
export function HistoryCard(props: Props) {
  const { listing } = props;
  const [search, setSearch] = useSearchParams();
  const window = listing?.window ?? null;
  const range = rangeOf(search.get("range"), window === null ? "all" : rangeFor(spanMs(window)));
  const choose = (chosen: Range) =>
    setSearch((before) => {
      const after = new URLSearchParams(before);
      after.set("range", chosen);
      return after;
    });
  const reason = listing === undefined ? null : whyNoHistory(listing);
  return (
    <Card
      title={window === null ? "History" : "Curve"}
      aside={reason === null && <Ranges range={range} onChange={choose} />}
    >
      {/* A new range begins with another clock and no selected step. */}
      {reason === null ? (
        <History key={range} range={range} {...props} />
      ) : (
        <p className={css.none}>{reason}</p>
      )}
    </Card>
  );
}

function Ranges({ range, onChange }: { range: Range; onChange: (range: Range) => void }) {
  return (
    <div className={css.ranges} role="radiogroup" aria-label="Time range">
      {RANGES.map(([each, label]) => (
        <label key={each} className={each === range ? css.chosen : undefined}>
          <input
            type="radio"
            name="range"
            className="visually-hidden"
            checked={each === range}
            onChange={() => onChange(each)}
          />
          {label}
        </label>
      ))}
    </div>
  );
}

function History({
  id,
  feature,
  range,
  listing,
  isKeyed,
  triggers,
  recorded,
}: Props & { range: Range }) {
  const [now] = useState(() => Date.now());
  const [chosen, setChosen] = useState<string | null>(null);
  const start = startOf(range, now);
  const pages = useInfiniteQuery(history(feature, id, start));
  const before = useQuery(valueBefore(feature, id, start));
  if (pages.isError && pages.data === undefined) {
    return <NoHistory error={pages.error} retry={() => void pages.refetch()} />;
  }
  if (pages.data === undefined) return <Skeleton lines={1} height={200} />;
  const steps = merged(pages.data.pages.map(({ values }) => values));
  const held = before.data ?? null;
  if (steps.length === 0 && held === null) {
    return <NoSteps range={range} triggers={triggers} isWindow={Boolean(listing?.window)} />;
  }
  const found = segments(steps, held, start, now);
  const index = found.findIndex(({ step }) => stepKey(step) === (chosen ?? recorded));
  const select = (place: number) => {
    const segment = found[place];
    if (segment !== undefined) setChosen(stepKey(segment.step));
  };
  return (
    <div className={css.stack}>
      <HistoryChart segments={drawnSegments(found, listing)} selected={index} onSelect={select} />
      <StepList
        segments={found}
        isKeyed={isKeyed}
        selected={index}
        recorded={recorded}
        onSelect={select}
      />
      <div className={css.actions}>
        {pages.hasNextPage && (
          <Button busy={pages.isFetchingNextPage} onClick={() => void pages.fetchNextPage()}>
            Load older values
          </Button>
        )}
        <CopyAs call={callOf(feature, id, start)} />
        <span className={css.hint}>
          {plural(steps.length, "step")}
          {pages.hasNextPage ? " so far" : ""}
        </span>
      </div>
    </div>
  );
}

type NoStepsProps = { range: Range; triggers: readonly string[]; isWindow: boolean };

function NoSteps({ range, triggers, isWindow }: NoStepsProps) {
  const [missing, verb] = isWindow
    ? ["No event has contributed", "contributes"]
    : ["No value was ever stored", "stores one"];
  if (range !== "all") {
    return (
      <p className={css.none}>
        {isWindow ? `${missing} in this range.` : "No value in this range."}
      </p>
    );
  }
  return (
    <p className={css.none}>
      {missing}.
      {triggers.length > 0 && (
        <>
          {" "}
          The first event of type {triggers.join(" or ")} {verb}.
        </>
      )}
    </p>
  );
}

function callOf(feature: string, id: string, start: number | null) {
  const moment = start === null ? null : new Date(start).toISOString();
  const query = new URLSearchParams({ entity_id: id, events: "true" });
  if (moment !== null) query.set("start", moment);
  return {
    path: `/v1/features/${feature}/history?${query.toString()}`,
    cli: ["features", "history", feature, id, ...(moment === null ? [] : ["--since", moment])],
    python: `get_feature_history(${JSON.stringify(feature)}, ${JSON.stringify(id)})`,
  };
}

/** A feature without a history says why; anything else is a failure. */
function NoHistory({ error, retry }: { error: unknown; retry: () => void }) {
  if (error instanceof ProblemError && error.status === 422) {
    return (
      <p className={css.none}>
        <bdi>{error.message}.</bdi>
      </p>
    );
  }
  return <ErrorPanel error={error} retry={retry} />;
}
