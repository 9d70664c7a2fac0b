import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "wouter";

import { ProblemError } from "~/api/problems";
import { redriveOf } from "~/api/redrives";
import {
  Card,
  Code,
  CopyAs,
  Empty,
  ErrorPanel,
  Id,
  KeyValues,
  Skeleton,
  Time,
  UserText,
} from "~/design";
import { count, pretty } from "~/design/format";

import css from "./DeadLetters.module.css";
import { letter as letterQuery, type Letter } from "./queries";

type Props = { id: string; known: Letter | undefined; actions: ReactNode };

/** One dead letter: the error, where it was raised, and the event. */
export function LetterDetail({ id, known, actions }: Props) {
  const query = useQuery({ ...letterQuery(id), ...(known && { initialData: known }) });
  if (query.error instanceof ProblemError && query.error.status === 404) {
    return (
      <Card title="Letter">
        <Empty title="This letter is gone">It was redriven or discarded, here or elsewhere.</Empty>
      </Card>
    );
  }
  if (query.data === undefined) {
    return (
      <Card title="Letter">
        {query.isError ? (
          <ErrorPanel error={query.error} retry={() => void query.refetch()} />
        ) : (
          <Skeleton lines={6} />
        )}
      </Card>
    );
  }
  return <Shown letter={query.data} actions={actions} />;
}

function Shown({ letter, actions }: { letter: Letter; actions: ReactNode }) {
  const { event } = letter;
  const redrive = redriveOf(event.event_id ?? "");
  // The log of events has the original event, not its redrives.
  const original = redrive === null ? (event.event_id ?? "") : redrive.event;
  return (
    <Card
      title="Letter"
      aside={
        <>
          {actions}
          <CopyAs
            call={{
              path: `/v1/dead-letters/${letter.id}`,
              cli: ["dlq", "show", letter.id],
              python: `dead_letters.list(ids=[${JSON.stringify(letter.id)}])`,
            }}
          />
        </>
      }
    >
      <div className={css.letter}>
        <p className={css.sample}>
          <bdi>{letter.error}</bdi>
        </p>
        <KeyValues
          rows={[
            ["Letter", <Id key="id" value={letter.id} head={18} />],
            [
              "Event",
              <span key="event" className={css.event}>
                <strong>
                  <UserText>{event.event_type}</UserText>
                </strong>
                <UserText>{event.entity_id}</UserText>
              </span>,
            ],
            [
              "Event id",
              original !== null && <EventLink key="id" id={original} entityId={event.entity_id} />,
            ],
            ["Redriven", redrive && <>was letter {redrive.letter} before</>],
            ["Attempts", count(letter.attempts)],
            ["First failed", <Time key="first" at={letter.first_failed_at} show="exact" />],
            ["Died", <Time key="dead" at={letter.dead_at} show="exact" />],
            ["Group", <UserText key="group">{letter.group}</UserText>],
          ]}
        />
        <section>
          <h3>Traceback</h3>
          <Code text={letter.traceback.trimEnd()} label="Copy the traceback" />
        </section>
        <section>
          <h3>Payload</h3>
          <Code text={pretty(event.payload)} label="Copy the payload" />
        </section>
      </div>
    </Card>
  );
}

function EventLink({ id, entityId }: { id: string; entityId: string }) {
  const search = { view: "past", range: "all", entity: entityId, event: id };
  return (
    <Link href={`/events?${new URLSearchParams(search).toString()}`}>
      <bdi>{id}</bdi>
    </Link>
  );
}
