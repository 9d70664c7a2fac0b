import { Fragment, type ReactNode } from "react";
import { Link } from "wouter";

import type { Schema } from "~/api/client";
import { Card, Code, Dim, KeyValues, Mono, UserText } from "~/design";
import { count, duration, inline, plural, wallTime } from "~/design/format";
import { fieldsOf, type FormParameter } from "~/parameters/schemas";
import { accuracyWords, coverageWords, windowWords } from "~/windows";

type CardData = Schema<"DeclarationCard">;
type Rows = readonly (readonly [name: string, value: ReactNode])[];

/** The options that a declaration has; those without a value are left out. */
export function Options({ card }: { card: CardData }) {
  const rows = rowsOf(card).filter(([, value]) => value !== null);
  if (rows.length === 0) return null;
  return (
    <Card title="Options">
      <KeyValues rows={rows} />
    </Card>
  );
}

function rowsOf(card: CardData): Rows {
  if (card.feature) return featureRows(card.feature);
  if (card.context) return contextRows(card.context);
  if (card.retriever) return retrieverRows(card.retriever);
  if (card.index) return indexRows(card.index);
  if (card.event) return eventRows(card.event);
  if (card.entity) return [["Id", typed(card.entity.id_field, card.entity.id_type)]];
  return [];
}

function eventRows({ schema }: Schema<"EventListing">): Rows {
  if (schema === null) return [["Payload", "any object"]];
  return [["Payload", <Parameters key="payload" of={fieldsOf(schema)} />]];
}

function featureRows(feature: Schema<"FeatureListing">): Rows {
  return [
    ["Type", mono(feature.type)],
    ...aboutRows(feature),
    ...(feature.window ? memberRows(feature.window) : []),
    ...(feature.windows ? familyRows(feature.windows) : []),
    ["Triggers", feature.triggers.length > 0 ? mono(feature.triggers.join(", ")) : null],
    ["Runs", feature.schedule],
    ["Refresh", feature.refresh?.startsWith("cron:") ? mono(feature.refresh) : null],
    ["Next runs", feature.next_runs.length > 0 ? <NextRuns of={feature.next_runs} /> : null],
    ["Time to live", span(feature.ttl_ms)],
    ["Freshness SLA", span(feature.freshness_sla_ms)],
    ["Default", feature.default === null ? null : mono(inline(feature.default))],
    ["Computed for", feature.materialize ? "every known entity" : null],
    ["Template", feature.template === null ? null : mono(feature.template)],
    ["SQL", feature.sql === null ? null : <Code text={feature.sql} />],
  ];
}

/** The next runs in the time zone of the schedule, whose offset each of them has. */
function NextRuns({ of }: { of: readonly string[] }) {
  return of.map((run) => <div key={run}>{wallTime(run)}</div>);
}

/** What a feature is counted in, who answers for it, and what it is found by. */
function aboutRows({ unit, owner, tags }: Schema<"FeatureListing">): Rows {
  return [
    ["Unit", unit === "" ? null : <UserText key="unit">{unit}</UserText>],
    ["Owner", owner === "" ? null : <Filtered key="owner" by="owner" as={owner} />],
    [
      "Tags",
      tags.length === 0
        ? null
        : tags.map((tag, index) => (
            <Fragment key={tag}>
              {index > 0 && ", "}
              <Filtered by="tag" as={tag} />
            </Fragment>
          )),
    ],
  ];
}

/** A link to everything with the same owner or tag. */
function Filtered({ by, as }: { by: "owner" | "tag"; as: string }) {
  return (
    <Link href={`/store?${new URLSearchParams({ view: "list", [by]: as }).toString()}`}>
      <UserText>{as}</UserText>
    </Link>
  );
}

function memberRows(window: Schema<"MemberListing">): Rows {
  return [
    ["Family", mono(window.family)],
    ["Aggregate", mono(window.aggregate)],
    ["Window", windowWords(window)],
    ["Covers", coverageWords(window)],
    ["Accuracy", accuracyWords(window)],
  ];
}

function familyRows({ value, by, max_keys, where }: Schema<"FamilyListing">): Rows {
  return [
    ["Aggregates", value === null ? "what the function returns" : mono(value)],
    [
      "By key",
      by === null ? null : (
        <>
          {mono(by)}, at most {count(max_keys ?? 0)} kept apart
        </>
      ),
    ],
    ["Only where", where === null ? null : mono(inline(where))],
  ];
}

function contextRows(context: Schema<"ContextListing">): Rows {
  return [
    ["Parameters", <Parameters key="parameters" of={context.parameters} />],
    ["Budget", context.max_tokens === null ? null : plural(context.max_tokens, "token")],
    ["Overflow", context.on_overflow],
    ["Freshness SLA", span(context.freshness_sla_ms)],
    ["Strict", context.freshness_strict ? "a violation is an error" : null],
    ["Model", context.model === null ? null : mono(context.model)],
    ["Version", context.version],
    ["Timeout", span(context.timeout_ms)],
  ];
}

function retrieverRows(retriever: Schema<"RetrieverListing">): Rows {
  return [
    ["Parameters", <Parameters key="parameters" of={retriever.parameters} />],
    ["Index", retriever.index === null ? null : mono(retriever.index)],
    ["Mode", retriever.mode],
    ["Results", retriever.top_k === null ? null : `at most ${count(retriever.top_k)}`],
    ["Cache", span(retriever.cache_ttl_ms)],
    ["Freshness SLA", span(retriever.freshness_sla_ms)],
    ["On error", retriever.on_error],
    ["Records", retriever.record ? "keep the results as a whole" : null],
    ["Timeout", span(retriever.timeout_ms)],
  ];
}

function indexRows(index: Schema<"IndexListing">): Rows {
  return [
    ["Embedder", index.embedder === null ? "of the settings" : mono(index.embedder)],
    ["Model", index.model === null ? null : mono(index.model)],
    ["Dimensions", index.dimensions === null ? null : count(index.dimensions)],
    ["Chunks", `at most ${count(index.chunk_tokens)} tokens, ${count(index.overlap)} repeated`],
    ["Past versions", span(index.keep_versions_ms, "kept for ")],
  ];
}

function Parameters({ of }: { of: readonly FormParameter[] }) {
  if (of.length === 0) return "none";
  return of.map(({ name, type, required, default: value, description }) => (
    <div key={name}>
      {typed(name, type)}
      {!required && mono(` = ${value === "" ? '""' : inline(value)}`)}
      {description !== undefined && (
        <Dim>
          {" "}
          <UserText>{description}</UserText>
        </Dim>
      )}
    </div>
  ));
}

function typed(name: string, type: string | null): ReactNode {
  return mono(type === null ? name : `${name}: ${type}`);
}

function mono(text: string): ReactNode {
  return (
    <Mono>
      <UserText>{text}</UserText>
    </Mono>
  );
}

function span(ms: number | null, before = ""): string | null {
  return ms === null ? null : before + duration(ms);
}
