import { useDebouncedValue } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { IconPlayerPauseFilled, IconPlayerPlayFilled } from "@tabler/icons-react";
import { useEffect, useState } from "react";
import { useSearchParams } from "wouter";

import { isTyping } from "~/app/keys";
import { useCan } from "~/api/me";
import { declarations } from "~/api/queries";
import {
  Button,
  Card,
  Choice,
  CopyAs,
  Empty,
  ErrorPanel,
  explained,
  Field,
  MasterDetail,
  PageHead,
  Skeleton,
  StateBadge,
  StateWord,
  Views,
  type Call,
} from "~/design";
import { count, plural } from "~/design/format";
import { IdField } from "~/parameters/IdField";

import { EventDetail, UnknownEvent } from "./EventDetail";
import { EventList } from "./EventList";
import css from "./Events.module.css";
import { beginning, RANGES, usePastEvents, type PastFilter, type Range } from "./past";
import { EMPTY_DRAFT, Publish, type Draft } from "./Publish";
import { useSelection, type Selection } from "./selection";
import { useTail, type Shown, type TailBuffer, type TailView } from "./tail";

type View = "live" | "past";
const VIEWS = [
  ["live", "Live"],
  ["past", "Past"],
] as const;

/** How long to wait for the next letter of a filter. */
const TYPING_MS = 300;

export default function EventsPage() {
  const [search, setSearch] = useSearchParams();
  const view: View = search.get("view") === "past" ? "past" : "live";
  const only = { event_type: search.get("type") ?? "", entity_id: search.get("entity") ?? "" };
  const [draft, setDraft] = useState<Draft | null>(null);
  const canPublish = useCan("POST /ingest/{event_type}");
  const set = (name: string, value: string | null, replace = false) =>
    setSearch(
      (before) => {
        const next = new URLSearchParams(before);
        if (value) next.set(name, value);
        else next.delete(name);
        return next;
      },
      { replace },
    );
  const Body = view === "live" ? LiveEvents : PastEvents;
  return (
    <>
      <PageHead
        tab="Events"
        title="Events"
        subtitle={
          view === "live"
            ? "Every accepted event, as it arrives."
            : "Accepted events by the time they happened, the newest first."
        }
        actions={
          <>
            <Views
              views={VIEWS}
              view={view}
              onChange={(next) => set("view", next === "live" ? null : next)}
            />
            <CopyAs call={callOf(view, only)} />
            {canPublish && (
              <Button look="primary" onClick={() => setDraft(EMPTY_DRAFT)}>
                Publish
              </Button>
            )}
          </>
        }
      />
      <Body
        only={only}
        set={set}
        search={search}
        onCopy={({ event }) =>
          setDraft({
            eventType: event.event_type,
            entityId: event.entity_id,
            payload: JSON.stringify(event.payload, null, 2),
          })
        }
      />
      <Publish draft={draft} onChange={setDraft} onClose={() => setDraft(null)} />
    </>
  );
}

type Only = { event_type: string; entity_id: string };

type BodyProps = {
  only: Only;
  search: URLSearchParams;
  set: (name: string, value: string | null, replace?: boolean) => void;
  onCopy: (event: Shown) => void;
};

function queryOf(only: Only): string {
  const given = Object.entries(only).filter(([, value]) => value !== "");
  return given.length === 0 ? "" : `?${new URLSearchParams(given).toString()}`;
}

function callOf(view: View, only: Only): Call {
  const options = [
    ...(only.event_type ? ["--event-type", only.event_type] : []),
    ...(only.entity_id ? ["--entity-id", only.entity_id] : []),
  ];
  if (view === "live") return { path: `/v1/events/tail${queryOf(only)}` };
  const given = Object.entries(only).filter(([, value]) => value !== "");
  return {
    path: `/v1/events${queryOf(only)}`,
    cli: ["events", "list", ...options],
    python: `bus.list(${given.map(([name, value]) => `${name}=${JSON.stringify(value)}`).join(", ")})`,
  };
}

function LiveEvents({ only, set, search, onCopy }: BodyProps) {
  const [view, buffer] = useTail(useDebouncedValue(queryOf(only), TYPING_MS)[0]);
  const selection = useSelection(view.events, search, set);
  usePauseKey(view, buffer);
  return (
    <>
      <div className={css.bar}>
        <Filters only={only} set={set} />
        <div className={css.live}>
          <Status view={view} />
          <Button
            icon={
              view.isPaused ? (
                <IconPlayerPlayFilled size={14} aria-hidden />
              ) : (
                <IconPlayerPauseFilled size={14} aria-hidden />
              )
            }
            title="Shortcut: p"
            onClick={view.isPaused ? buffer.resume : buffer.pause}
          >
            {view.isPaused ? "Resume" : "Pause"}
          </Button>
          <Button onClick={buffer.clear} disabled={view.events.length === 0}>
            Clear
          </Button>
        </div>
      </div>
      <Listed
        selection={selection}
        onCopy={onCopy}
        title={
          view.events.length === 0 ? "Waiting for events" : plural(view.events.length, "event")
        }
        aside={<Notes view={view} />}
        events={view.events}
        empty={<NoLiveEvents view={view} isFiltered={queryOf(only) !== ""} />}
      />
    </>
  );
}

function PastEvents({ only, set, search, onCopy }: BodyProps) {
  const [opened] = useState(() => Math.ceil(Date.now() / 60_000) * 60_000);
  const range = rangeOf(search);
  const [wanted] = useDebouncedValue(only, TYPING_MS);
  const query = usePastEvents(pastFilter(wanted, search, opened), true);
  const events = query.data ?? [];
  const selection = useSelection(events, search, set);
  const more = () => {
    // A page that failed is asked for by the reader: the list would ask again at once.
    const isDue = query.hasNextPage && !query.isFetching && !query.isFetchNextPageError;
    if (isDue) void query.fetchNextPage();
  };
  return (
    <>
      <div className={css.bar}>
        <Filters only={only} set={set} />
        <Choice
          label="Time"
          value={range}
          onChange={(value) => set("range", value)}
          options={Object.entries(RANGES).map(([name, [label]]) => [name, label] as const)}
        />
      </div>
      {query.isPending ? (
        <Card title="Events">
          <Skeleton lines={8} />
        </Card>
      ) : query.isError && events.length === 0 ? (
        <ErrorPanel error={query.error} retry={() => void query.refetch()} />
      ) : (
        <Listed
          selection={selection}
          onCopy={onCopy}
          title={`${plural(events.length, "event")}${query.hasNextPage ? ", and older ones" : ""}`}
          aside={
            query.isFetching ? (
              "Loading…"
            ) : query.isFetchNextPageError ? (
              <OlderFailed error={query.error} retry={() => void query.fetchNextPage()} />
            ) : undefined
          }
          events={events}
          onEnd={more}
          empty={
            <Empty title="No events in this time" command="headwater events publish visit ada">
              Choose a longer time or other filters, or publish an event.
            </Empty>
          }
        />
      )}
    </>
  );
}

function OlderFailed({ error, retry }: { error: Error; retry: () => void }) {
  return (
    <span role="alert">
      <StateWord state="failed">{explained(error).title}</StateWord>{" "}
      <Button onClick={retry}>Load older events</Button>
    </span>
  );
}

function rangeOf(search: URLSearchParams): Range {
  const known = search.get("range");
  return known !== null && known in RANGES ? (known as Range) : "24h";
}

function pastFilter(only: Only, search: URLSearchParams, opened: number): PastFilter {
  const since = search.get("since") ?? beginning(rangeOf(search), opened);
  const given = { ...only, since, before: search.get("before") };
  return Object.fromEntries(Object.entries(given).filter(([, value]) => Boolean(value)));
}

type ListedProps = {
  selection: Selection;
  onCopy: (event: Shown) => void;
  title: string;
  aside?: React.ReactNode;
  events: readonly Shown[];
  empty: React.ReactNode;
  onEnd?: () => void;
};

function Listed({ selection, onCopy, title, aside, events, empty, onEnd }: ListedProps) {
  const { selected, unknown, select } = selection;
  return (
    <MasterDetail
      hasDetail={selected !== undefined || unknown !== null}
      list={
        <Card title={title} aside={aside} flush>
          {events.length === 0 ? (
            empty
          ) : (
            <EventList
              events={events}
              selected={selected}
              onSelect={select}
              isPast={onEnd !== undefined}
              onEnd={onEnd}
            />
          )}
        </Card>
      }
      detail={
        unknown !== null ? (
          <UnknownEvent id={unknown} onClose={() => select(null)} />
        ) : selected === undefined ? (
          <Card>
            <Empty title="No event selected">
              Select an event to see its payload and the features that it triggers.
            </Empty>
          </Card>
        ) : (
          <EventDetail
            shown={selected}
            onCopy={() => onCopy(selected)}
            onClose={() => select(null)}
          />
        )
      }
    />
  );
}

function Filters({ only, set }: Pick<BodyProps, "only" | "set">) {
  const { data } = useQuery(declarations);
  const known = [...new Set(data?.features.flatMap(({ triggers }) => triggers))].sort();
  return (
    <div className={css.filters} role="search">
      <Field
        label="Event type"
        list="event-types"
        placeholder="Any"
        value={only.event_type}
        onChange={(event) => set("type", event.target.value, true)}
      />
      <datalist id="event-types">
        {known.map((each) => (
          <option key={each} value={each} />
        ))}
      </datalist>
      <IdField
        label="Entity id"
        placeholder="Any"
        value={only.entity_id}
        onChange={(event) => set("entity", event.target.value, true)}
      />
    </div>
  );
}

/** Whether events arrive, in a word. */
function Status({ view: { state, isPaused, waiting } }: { view: TailView }) {
  const badge = () => {
    if (state.phase === "refused") return <StateBadge state="failed">Refused</StateBadge>;
    if (state.phase === "waiting") return <StateBadge state="ageing">Reconnecting</StateBadge>;
    if (state.phase === "connecting") return <StateBadge state="unknown">Connecting</StateBadge>;
    if (!isPaused) return <StateBadge state="fresh">Live</StateBadge>;
    return <StateBadge state="unknown">Paused · {count(waiting)} waiting</StateBadge>;
  };
  return <span role="status">{badge()}</span>;
}

function Notes({ view: { skipped } }: { view: TailView }) {
  if (skipped === 0) return null;
  return <span>{plural(skipped, "event")} left out: this page was too slow</span>;
}

function NoLiveEvents({ view: { state }, isFiltered }: { view: TailView; isFiltered: boolean }) {
  if (state.phase === "refused") return <ErrorPanel error={state.error} />;
  if (state.phase === "waiting" && state.error !== null) return <ErrorPanel error={state.error} />;
  return (
    <Empty
      title={
        isFiltered
          ? "No matching event since this page was opened"
          : "No event since this page was opened"
      }
      command="headwater events publish visit ada"
    >
      Events appear here within a second of being accepted. Past events are in the other view.
    </Empty>
  );
}

/** Pause and resume with the key `p`. */
function usePauseKey({ isPaused }: TailView, buffer: TailBuffer): void {
  useEffect(() => {
    let previous = "";
    const onKey = (event: KeyboardEvent) => {
      // `g p` goes to another page.
      const isAfterG = previous === "g";
      previous = event.key;
      if (event.key !== "p" || isAfterG || isTyping(event)) return;
      if (isPaused) buffer.resume();
      else buffer.pause();
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, [isPaused, buffer]);
}
