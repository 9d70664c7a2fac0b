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

/** How long the form waits until the features of an event are visible. */
const WAIT = "5s";
const MOST_VALUES = 6;

type Props = { draft: Draft | null; onChange: (draft: Draft) => void; onClose: () => void };

/** A form that publishes one event, and shows what it changed, or why nothing yet. */
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
  const triggered = data?.features.filter(({ triggers }) => triggers.includes(draft.eventType));
  const publish = useMutation({
    mutationFn: async (content: Record<string, unknown>) => {
      const event = body(
        await api.POST("/ingest/{event_type}", {
          params: { path: { event_type: draft.eventType }, query: { wait: WAIT } },
          body: { entity_id: draft.entityId, payload: content } as never,
        }),
      );
      const readable = triggered?.filter(
        ({ type, windows }) => type !== "None" && windows === null,
      );
      const names = event.visible ? (readable ?? []).map(({ name }) => name) : [];
      return { event, values: await valuesOf(names.slice(0, MOST_VALUES), draft.entityId) };
    },
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
        {publish.data !== undefined && <Accepted {...publish.data} />}
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

type Value = { name: string; value: unknown };

/** Return the values of features that can be read, after an event that they show. */
async function valuesOf(names: readonly string[], entityId: string): Promise<Value[]> {
  const answers = await Promise.all(
    names.map((name) =>
      api.GET("/v1/features/{name}", {
        params: { path: { name }, query: { entity_id: entityId } },
      }),
    ),
  );
  return answers.flatMap(({ data }, place) =>
    data === undefined ? [] : [{ name: names[place] ?? "", value: data.value }],
  );
}

function Accepted({ event, values }: { event: Schema<"AcceptedEvent">; values: Value[] }) {
  const accepted = event.duplicate ? "Accepted before" : "Accepted";
  return (
    <div className={css.result}>
      <StateWord state={event.visible ? "fresh" : "ageing"}>
        {event.visible ? `${accepted} and visible` : `${accepted}, not visible yet`}
      </StateWord>
      <Id value={event.event_id} />
      {values.map(({ name, value }) => (
        <code key={name}>
          {name} = {JSON.stringify(value)}
        </code>
      ))}
      {event.problem && <bdi>{event.problem}</bdi>}
      {event.hint && <bdi>{event.hint}</bdi>}
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
