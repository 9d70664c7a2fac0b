import { Tooltip } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";

import { api, body } from "~/api/client";
import { overview } from "~/api/queries";
import { useReachability } from "~/api/reachability";
import {
  Card,
  CopyAs,
  ErrorPanel,
  Loaded,
  PageHead,
  Skeleton,
  StateBadge,
  useNow,
  type State,
} from "~/design";
import { duration, exact } from "~/design/format";
import { localTime } from "~/design/preferences";

import { Findings } from "./Findings";
import css from "./Overview.module.css";
import { Sentence } from "./Sentence";
import { Contexts, Objectives, Stores, Workers } from "./Tables";
import { Tiles, TilesLoading } from "./Tiles";

const STATES: Record<string, State> = { healthy: "fresh", attention: "ageing", failing: "failed" };

/** Is it healthy, since when, and what to look at first. */
export default function OverviewPage() {
  const { reachable } = useReachability();
  const state = useQuery(overview);
  const series = useQuery({
    queryKey: ["series"],
    queryFn: async ({ signal }) => body(await api.GET("/v1/series", { signal })),
    refetchInterval: 10_000,
  });
  if (state.data === undefined) {
    return state.isError ? (
      <ErrorPanel error={state.error} retry={() => void state.refetch()} />
    ) : (
      <Loading />
    );
  }
  const { status, since, title, subtitle } = state.data;
  return (
    <>
      <PageHead
        tab={title}
        title={<Sentence>{reachable ? title : `Last known: ${title}`}</Sentence>}
        subtitle={<Sentence>{subtitle}</Sentence>}
        actions={
          <>
            {reachable ? (
              <StateBadge state={STATES[status] ?? "unknown"}>
                {status}
                {since !== null && <For since={since} />}
              </StateBadge>
            ) : (
              <StateBadge state="unknown">was {status}</StateBadge>
            )}
            <CopyAs call={{ path: "/v1/overview", cli: ["doctor"], python: "admin.overview()" }} />
          </>
        }
      />
      <Loaded query={series} loading={<TilesLoading />}>
        {(data) => <Tiles series={data} overview={state.data} />}
      </Loaded>
      <div className={css.grid}>
        <div className={css.column}>
          <Findings
            findings={state.data.findings}
            isNew={state.data.title.startsWith("Ready for the first")}
          />
          <Workers {...state.data} />
        </div>
        <div className={css.column}>
          <Objectives objectives={state.data.objectives} />
          <Contexts contexts={state.data.contexts} />
          <Stores stores={state.data.stores} />
        </div>
      </div>
    </>
  );
}

/** For how long the store has its status; the exact time on hover. */
function For({ since }: { since: string }) {
  const now = useNow();
  const time = Date.parse(since);
  return (
    <Tooltip label={`since ${exact(time, { local: localTime.use(), now })}`} openDelay={200}>
      <time dateTime={since} className={css.since}>
        for {duration(Math.max(1, Math.floor((now - time) / 1_000)) * 1_000)}
      </time>
    </Tooltip>
  );
}

function Loading() {
  return (
    <>
      <div className={css.headLoading}>
        <Skeleton lines={2} />
      </div>
      <TilesLoading />
      <div className={css.grid}>
        {[
          ["Look at these first", "Workers"],
          ["Contexts, last hour", "Stores"],
        ].map((column) => (
          <div key={column[0]} className={css.column}>
            {column.map((title) => (
              <Card key={title} title={title}>
                <Skeleton lines={4} />
              </Card>
            ))}
          </div>
        ))}
      </div>
    </>
  );
}
