import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";

import { useCan } from "~/api/me";
import { declarations } from "~/api/queries";
import { redriveOf } from "~/api/redrives";
import { Button, Card, Code, CopyAs, Dim, Empty, Id, KeyValues, Time, UserText } from "~/design";

import { pretty } from "~/design/format";

import css from "./Events.module.css";
import type { Shown } from "./tail";

type Props = { shown: Shown; onCopy: () => void; onClose: () => void };

/** One event: its content, and what it triggers. */
export function EventDetail({ shown: { event, received_at }, onCopy, onClose }: Props) {
  const canPublish = useCan("POST /ingest/{event_type}");
  const id = event.event_id ?? "";
  return (
    <Card
      title="Event"
      aside={
        <>
          {canPublish && <Button onClick={onCopy}>Publish a copy</Button>}
          <CopyAs
            call={{
              path: `/v1/events?${new URLSearchParams({ event_id: id }).toString()}`,
              cli: ["events", "show", id],
              python: `bus.list(event_id=${JSON.stringify(id)})`,
            }}
          />
          <span className={css.close}>
            <Button onClick={onClose}>Back</Button>
          </span>
        </>
      }
    >
      <div className={css.detail}>
        <KeyValues
          rows={[
            [
              "Type",
              <strong key="type">
                <UserText>{event.event_type}</UserText>
              </strong>,
            ],
            ["Entity id", <UserText key="entity">{event.entity_id}</UserText>],
            ["Event id", <Id key="id" value={id} head={18} tail={8} />],
            ["Happened", <Time key="happened" at={event.timestamp} show="exact" />],
            ["Accepted", <Time key="accepted" at={received_at} show="exact" />],
            ["Trace", event.traceparent && <Id key="trace" value={event.traceparent} />],
          ]}
        />
        <section>
          <h3>Payload</h3>
          <Code text={pretty(event.payload)} label="Copy the payload" />
        </section>
        <Triggered eventType={event.event_type} entityId={event.entity_id} />
      </div>
    </Card>
  );
}

/** The answer to an address whose event does not exist. */
export function UnknownEvent({ id, onClose }: { id: string; onClose: () => void }) {
  const close = (
    <span className={css.close}>
      <Button onClick={onClose}>Back</Button>
    </span>
  );
  return (
    <Card title="Event" aside={close}>
      <Empty title="No such event">
        {redriveOf(id) === null ? (
          <>
            No event of the log has the id <bdi>{id}</bdi>. It may have been pruned or forgotten.
          </>
        ) : (
          <>
            <bdi>{id}</bdi> is the redrive of a dead letter. The log has the original event only.
          </>
        )}
      </Empty>
    </Card>
  );
}

/** The features that events of a type trigger, each with its value of the entity. */
function Triggered({ eventType, entityId }: { eventType: string; entityId: string }) {
  const { data } = useQuery(declarations);
  const canLookUp = useCan("POST /v1/features");
  if (data === undefined) return null;
  const features = data.features.filter(({ triggers }) => triggers.includes(eventType));
  return (
    <section>
      <h3>Triggers</h3>
      {features.length === 0 ? (
        <p>
          <Dim>No feature. The event is kept in the log.</Dim>
        </p>
      ) : (
        <ul className={css.features}>
          {features.map(({ name, entity }) => (
            <li key={name}>
              <Link href={`/store?${new URLSearchParams({ card: `feature:${name}` }).toString()}`}>
                {name}
              </Link>
              {canLookUp && (
                <Link
                  className={css.value}
                  href={`/lookup?${new URLSearchParams({ entity, id: entityId, feature: name }).toString()}`}
                >
                  {entity} <bdi className={css.cut}>{entityId}</bdi>
                </Link>
              )}
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}
