import { Modal } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useId, useState, type SubmitEvent } from "react";

import { api, body, type Schema } from "~/api/client";
import { declarations } from "~/api/queries";
import { Button, CopyAs, explained, Field, Id, StateWord } from "~/design";
import { pythonValue } from "~/design/calls";
import { plural } from "~/design/format";
import { IdField } from "~/parameters/IdField";

import { Payload, PayloadSwap, usePayload } from "./Payload";
import css from "./Events.module.css";

export type Draft = { eventType: string; entityId: string; payload: string };

export const EMPTY_DRAFT: Draft = { eventType: "", entityId: "", payload: "{}" };

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
  const change = (part: Partial<Draft>) => {
    publish.reset();
    onChange({ ...draft, ...part });
  };
  const schema = data?.events.find(({ name }) => name === draft.eventType)?.schema ?? null;
  const form = usePayload(schema, draft.payload, (payload) => change({ payload }));
  const { payload } = form;
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    setTouched(true);
    if (typeof payload === "string" || !draft.eventType.trim() || !draft.entityId.trim()) return;
    if (Object.keys(form.problems).length === 0) publish.mutate(payload);
  };
  const changeType = (eventType: string) => {
    // What was entered into fields is of the type that had them.
    change(form.isEdited ? { eventType, payload: "{}" } : { eventType });
    form.clear();
  };
  const known = [...new Set(data?.events.map(({ name }) => name))].sort();
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
          onChange={(event) => changeType(event.target.value)}
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
      <Payload form={form} isTouched={isTouched} />
      <div className={css.submit}>
        <Button type="submit" look="primary" busy={publish.isPending}>
          Publish
        </Button>
        <PayloadSwap form={form} />
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
