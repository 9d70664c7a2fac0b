import { Modal } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useId, useState, type SubmitEvent } from "react";

import { api, body, type Schema } from "~/api/client";
import { declarations } from "~/api/queries";
import { Button, CopyAs, explained, Field, Id, StateWord, TextArea } from "~/design";
import { pythonValue } from "~/design/calls";
import { plural } from "~/design/format";
import { IdField } from "~/parameters/IdField";

import css from "./Events.module.css";

export type Draft = { eventType: string; entityId: string; payload: string };

export const EMPTY_DRAFT: Draft = { eventType: "", entityId: "", payload: "{}" };

/** Return the object in a text, or what is wrong with it. */
export function parsedPayload(text: string): Record<string, unknown> | string {
  let value: unknown;
  try {
    value = JSON.parse(text.trim() === "" ? "{}" : text);
  } catch (error) {
    return `This is not JSON: ${error instanceof Error ? error.message : String(error)}`;
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return 'A payload is an object, such as {"amount": 40}.';
  }
  return value as Record<string, unknown>;
}

type Props = { draft: Draft | null; onChange: (draft: Draft) => void; onClose: () => void };

/** A form that publishes one event, and shows whether it was accepted. */
export function Publish({ draft, onChange, onClose }: Props) {
  return (
    <Modal opened={draft !== null} onClose={onClose} title="Publish an event" centered size="lg">
      {draft !== null && <PublishForm draft={draft} onChange={onChange} />}
    </Modal>
  );
}

function PublishForm({ draft, onChange }: { draft: Draft; onChange: (draft: Draft) => void }) {
  const types = useId();
  const { data } = useQuery(declarations);
  const [isTouched, setTouched] = useState(false);
  const payload = parsedPayload(draft.payload);
  const missing = (text: string, what: string) =>
    isTouched && text.trim() === "" ? `Enter ${what}.` : null;
  const publish = useMutation({
    mutationFn: async (content: Record<string, unknown>) =>
      body(
        await api.POST("/ingest/{event_type}", {
          params: { path: { event_type: draft.eventType } },
          body: { entity_id: draft.entityId, payload: content } as never,
        }),
      ),
  });
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    setTouched(true);
    if (typeof payload === "string" || !draft.eventType.trim() || !draft.entityId.trim()) return;
    publish.mutate(payload);
  };
  const change = (part: Partial<Draft>) => {
    publish.reset();
    onChange({ ...draft, ...part });
  };
  const known = [...new Set(data?.features.flatMap(({ triggers }) => triggers))].sort();
  const triggered = data?.features.filter(({ triggers }) => triggers.includes(draft.eventType));
  return (
    <form className={css.form} onSubmit={submit} noValidate>
      <div className={css.pair}>
        <Field
          label="Event type"
          list={types}
          value={draft.eventType}
          data-autofocus
          required
          problem={missing(draft.eventType, "the type of the event")}
          onChange={(event) => change({ eventType: event.target.value })}
        />
        <datalist id={types}>
          {known.map((each) => (
            <option key={each} value={each} />
          ))}
        </datalist>
        <IdField
          label="Entity id"
          value={draft.entityId}
          required
          problem={missing(draft.entityId, "the id of an entity")}
          onChange={(event) => change({ entityId: event.target.value })}
        />
      </div>
      <p className={css.hint}>
        {hint(
          draft.eventType,
          triggered?.map(({ name }) => name),
        )}
      </p>
      <TextArea
        label="Payload, a JSON object"
        mono
        rows={8}
        value={draft.payload}
        problem={typeof payload === "string" ? payload : null}
        onChange={(event) => change({ payload: event.target.value })}
      />
      <div className={css.submit}>
        <Button type="submit" look="primary" busy={publish.isPending}>
          Publish
        </Button>
        {typeof payload !== "string" && (
          <CopyAs
            call={{
              method: "POST",
              path: `/ingest/${encodeURIComponent(draft.eventType)}`,
              body: { entity_id: draft.entityId, payload },
              cli: ["events", "publish", draft.eventType, draft.entityId, JSON.stringify(payload)],
              python: `publish(${JSON.stringify(draft.eventType)}, ${JSON.stringify(draft.entityId)}, ${pythonValue(payload)})`,
            }}
          />
        )}
      </div>
      <div aria-live="polite">
        {publish.data !== undefined && <Accepted event={publish.data} />}
        {publish.isError && <Refused error={publish.error} />}
      </div>
    </form>
  );
}

function hint(eventType: string, triggered: readonly string[] | undefined): string {
  if (!eventType.trim() || triggered === undefined) {
    return "Features whose trigger is the event type run for the entity.";
  }
  if (triggered.length === 0) return "Triggers no feature; the event is kept in the log.";
  return `Triggers ${plural(triggered.length, "feature")}: ${triggered.join(", ")}.`;
}

function Accepted({ event }: { event: Schema<"AcceptedEvent"> }) {
  return (
    <div className={css.result}>
      <StateWord state={event.duplicate ? "unknown" : "fresh"}>
        {event.duplicate ? "Accepted before" : "Accepted"}
      </StateWord>
      <Id value={event.event_id} />
      {event.hint !== null && <bdi>{event.hint}</bdi>}
    </div>
  );
}

function Refused({ error }: { error: unknown }) {
  const { title, meaning } = explained(error);
  return (
    <div className={css.result} role="alert">
      <StateWord state="failed">{title}</StateWord>
      <bdi>{meaning}</bdi>
    </div>
  );
}
