import type { UseQueryResult } from "@tanstack/react-query";

import { Card, Loaded, Skeleton, StateIcon } from "~/design";
import { count } from "~/design/format";

import { STATUSES, type Change, type Filters, type Status } from "./filters";
import { stateOf } from "./Freshness";
import { Histogram } from "./Histogram";
import type { Histogram as Counted } from "./queries";
import css from "./RecordsPage.module.css";

type Props = { counted: UseQueryResult<Counted>; filters: Filters; change: Change };

/** The contexts of a list over time, by freshness; marking a range narrows the list to it. */
export function OverTime({ counted, filters, change }: Props) {
  return (
    <Card
      flush
      title="Over time"
      className={css.chart}
      aside={<Legend counted={counted.data} filters={filters} change={change} />}
    >
      <Loaded query={counted} loading={<Skeleton lines={1} height={118} />}>
        {(data) =>
          data.buckets.length === 0 ? (
            <p className={css.none}>No context to count.</p>
          ) : (
            <Histogram
              data={data}
              onRange={(start, end) => change({ start, end, range: undefined })}
            />
          )
        }
      </Loaded>
    </Card>
  );
}

/** Return how many contexts there are in all, or null if not all were counted. */
export function totalOf(counted: Counted | undefined): number | null {
  return counted?.counted_from === null ? counted.contexts : null;
}

/** Return how many counted contexts have a status. */
export function statusTotal(counted: Counted | undefined, status: Status): number {
  return counted?.buckets.reduce((sum, { freshness }) => sum + (freshness?.[status] ?? 0), 0) ?? 0;
}

type LegendProps = Omit<Props, "counted"> & { counted: Counted | undefined };

/** The statuses with their numbers; a click lists only these. */
function Legend({ counted, filters, change }: LegendProps) {
  const isSplit = counted?.buckets.every(({ freshness }) => freshness !== null) ?? false;
  return (
    <div className={css.legend}>
      {STATUSES.map((status) => (
        <button
          key={status}
          type="button"
          aria-pressed={filters.freshness_status === status}
          onClick={() =>
            change({ freshness_status: filters.freshness_status === status ? undefined : status })
          }
        >
          <StateIcon state={stateOf(status)} size={12} />
          {status}
          {isSplit && <span>{count(statusTotal(counted, status))}</span>}
        </button>
      ))}
    </div>
  );
}
