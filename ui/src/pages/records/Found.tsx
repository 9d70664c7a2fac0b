import { useMemo, type ReactNode } from "react";

import { Card, ErrorPanel, Skeleton } from "~/design";

import type { useRecords } from "./queries";
import { RecordList } from "./RecordList";
import css from "./RecordsPage.module.css";
import type { Ticks } from "./Ticked";

type Props = {
  label: string;
  place: string;
  records: ReturnType<typeof useRecords>;
  total: number | null;
  ticks: Ticks;
  /** What is shown in place of an empty list. */
  nothing: ReactNode;
};

/** The list of found contexts: its shape, its rows, why there are none, or what failed. */
export function Found({ label, place, records, total, ticks, nothing }: Props) {
  const rows = useMemo(
    () => records.data?.pages.flatMap((page) => page.contexts) ?? [],
    [records.data],
  );
  const more = () => void records.fetchNextPage();
  return (
    <Card flush className={records.isPlaceholderData ? css.waiting : ""}>
      {records.data === undefined ? (
        records.isError ? (
          <ErrorPanel error={records.error} retry={() => void records.refetch()} />
        ) : (
          <div className={css.none}>
            <Skeleton lines={12} />
          </div>
        )
      ) : rows.length === 0 && !records.hasNextPage ? (
        nothing
      ) : (
        <>
          <RecordList
            key={place}
            label={label}
            place={place}
            rows={rows}
            total={total}
            // A page that failed is asked for by the reader: the list would ask again at once.
            more={
              records.hasNextPage && !records.isFetching && !records.isFetchNextPageError
                ? more
                : undefined
            }
            ticks={ticks}
          />
          {records.isFetchNextPageError && <ErrorPanel error={records.error} retry={more} />}
        </>
      )}
    </Card>
  );
}
