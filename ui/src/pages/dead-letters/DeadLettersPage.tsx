import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useSearchParams } from "wouter";

import { Card, CopyAs, Empty, Loaded, MasterDetail, PageHead, Skeleton } from "~/design";
import { count, plural } from "~/design/format";

import { GroupDetail } from "./GroupDetail";
import { GroupList } from "./GroupList";
import { letterGroups, useFreshLetters, type Group, type Settled, type Verb } from "./queries";
import { Results } from "./Results";

export type Done = { verb: Verb; settled: readonly Settled[] };

export default function DeadLettersPage() {
  const groups = useQuery(letterGroups);
  const [done, setDone] = useState<Done | null>(null);
  useFreshLetters(done?.verb === "redrive" ? done : null);
  return (
    <>
      <PageHead
        tab="Dead letters"
        title={groups.data === undefined ? "Dead letters" : title(groups.data.letters)}
        subtitle="An event and the one feature that could not handle it. It waits until it is redriven or discarded."
        actions={
          <CopyAs
            call={{
              path: "/v1/dead-letters/groups",
              cli: ["dlq", "list"],
              python: "dead_letters.list()",
            }}
          />
        }
      />
      {done !== null && <Results done={done} onClose={() => setDone(null)} />}
      <Loaded
        query={groups}
        loading={
          <Card title="Groups">
            <Skeleton lines={6} />
          </Card>
        }
      >
        {(data) =>
          data.letters === 0 ? (
            <Card>
              <Empty title="No dead letters" command="headwater dlq list">
                Every event was handled by all of its features. A feature that fails for an event,
                after its retries, appears here with the error and the traceback.
              </Empty>
            </Card>
          ) : (
            <Grouped data={data} onDone={setDone} />
          )
        }
      </Loaded>
    </>
  );
}

function title(letters: number): string {
  return letters === 0 ? "No dead letters" : plural(letters, "dead letter");
}

type Data = { groups: Group[]; letters: number; grouped: number; others: number };

function Grouped({ data, onDone }: { data: Data; onDone: (done: Done) => void }) {
  const [search, setSearch] = useSearchParams();
  const [feature, error] = [search.get("feature"), search.get("error")];
  const selected = data.groups.find(
    (group) => group.feature === feature && (error === null || group.error === error),
  );
  const choose = (group: Group | null) =>
    setSearch(group === null ? {} : { feature: group.feature, error: group.error });
  const shown = selected ?? (feature === null ? undefined : gone(feature, error ?? ""));
  return (
    <MasterDetail
      hasDetail={shown !== undefined}
      list={
        <Card
          title={plural(data.groups.length, "group")}
          aside={data.grouped < data.letters && <>of the newest {count(data.grouped)} letters</>}
          flush
        >
          <GroupList groups={data.groups} selected={selected} onSelect={choose} />
        </Card>
      }
      detail={
        shown === undefined ? (
          <Card>
            <Empty title="No group selected">
              Letters of one feature whose errors differ only in ids, numbers and texts are one
              group.
            </Empty>
          </Card>
        ) : (
          <GroupDetail
            key={`${shown.feature}\n${shown.error}`}
            group={shown}
            onDone={onDone}
            onClose={() => choose(null)}
          />
        )
      }
    />
  );
}

/** Return a group that the URL names and that has no letters now. */
function gone(feature: string, error: string): Group {
  const at = new Date(0).toISOString();
  return {
    feature,
    error,
    sample: error,
    count: 0,
    attempts: 0,
    first_failed_at: at,
    last_dead_at: at,
    event_types: [],
    ids: [],
  };
}
