import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { useSearchParams } from "wouter";

import { declarations } from "~/api/queries";
import {
  Button,
  ButtonLink,
  Choice,
  CopyAs,
  Empty,
  Field,
  PageHead,
  Time,
  UserText,
} from "~/design";
import { useDraft } from "~/design/draft";
import { plural } from "~/design/format";
import { ExportButtons } from "~/pages/records/ExportButtons";
import {
  callOf,
  changed,
  filtersOf,
  hasProvenance,
  PROVENANCE,
  queryOf,
  type Change,
  type Filters,
  type Provenance,
} from "~/pages/records/filters";
import { Found } from "~/pages/records/Found";
import { OverTime, totalOf } from "~/pages/records/OverTime";
import { useHistogram, useRecords, type Histogram } from "~/pages/records/queries";
import { TimeChoice } from "~/pages/records/RecordsPage";
import { Ticked, useTicks } from "~/pages/records/Ticked";
import { IdField } from "~/parameters/IdField";

import css from "./ImpactPage.module.css";

/** Which contexts saw a chunk, a document, a feature or an entity, over time. */
export default function ImpactPage() {
  const [params, setParams] = useSearchParams();
  const filters = useMemo(() => filtersOf(params, "all"), [params]);
  const [now] = useState(Date.now);
  const query = useMemo(() => queryOf(filters, now), [filters, now]);
  const isAsked = hasProvenance(query);
  const records = useRecords(filters, isAsked);
  const counted = useHistogram(filters, isAsked);
  const ticks = useTicks();
  const change: Change = (changes, options) =>
    setParams((known) => changed(known, changes), options);
  return (
    <>
      <PageHead
        tab="Impact"
        title={isAsked ? <Title filters={filters} counted={counted.data} /> : "Who saw it?"}
        subtitle={
          isAsked ? (
            <Seen counted={counted.data} last={records.data?.pages[0]?.contexts[0]?.created_at} />
          ) : (
            "Find every context that a chunk, a document, a feature or an entity went into."
          )
        }
        actions={
          isAsked && (
            <>
              <ExportButtons query={query} />
              <CopyAs call={callOf(query)} />
            </>
          )
        }
      />
      <Question filters={filters} change={change} />
      {isAsked ? (
        <>
          <OverTime counted={counted} filters={filters} change={change} />
          <Found
            label="Contexts that saw it"
            place={`impact-${params.toString()}`}
            records={records}
            total={totalOf(counted.data)}
            ticks={ticks}
            nothing={<Nothing filters={filters} />}
          />
          <Ticked ticks={ticks} />
        </>
      ) : (
        <Empty title="Ask for one thing">
          A wrong price was indexed, a feature had a bug, a customer asks what was used about them:
          name it above. Reads behind templates, computed features, searches and inner contexts
          count too.
        </Empty>
      )}
    </>
  );
}

/** The answer as a sentence. */
function Title({ filters, counted }: { filters: Filters; counted: Histogram | undefined }) {
  const subject = subjectOf(filters);
  if (counted === undefined) return <>Counting contexts that saw {subject}</>;
  if (counted.contexts === 0) return <>No context saw {subject}</>;
  return (
    <>
      {counted.counted_from === null ? "" : "More than "}
      {plural(counted.contexts, "context")} saw {subject}
    </>
  );
}

const NOUNS: readonly (readonly [Provenance, string])[] = [
  ["feature", "feature"],
  ["chunk", "chunk"],
  ["document", "document"],
];

/** Return the thing that was asked for: `document returns of the index help`. */
function subjectOf(filters: Filters) {
  const named = NOUNS.flatMap(([key, noun]) =>
    filters[key] === undefined ? [] : [<Named key={key} noun={noun} text={filters[key]} />],
  );
  if (filters.entity_id !== undefined) {
    named.push(<Named key="entity" noun={filters.entity ?? "entity"} text={filters.entity_id} />);
  }
  if (filters.index !== undefined) {
    named.push(<Named key="index" noun="index" text={filters.index} />);
  }
  return named.map((each, place) => (
    <span key={each.key}>
      {place > 0 && " with "}
      {each}
    </span>
  ));
}

function Named({ noun, text }: { noun: string; text: string }) {
  return (
    <>
      {noun}{" "}
      <span className={css.subject}>
        <UserText mono>{text}</UserText>
      </span>
    </>
  );
}

/** When it was seen first and last. */
function Seen({
  counted,
  last,
}: {
  counted: Histogram | undefined;
  /** When the newest context was made. */
  last: string | undefined;
}) {
  if (counted === undefined) return <>Reading the index of provenance…</>;
  const first = counted.buckets.find(({ contexts }) => contexts > 0);
  if (first === undefined) {
    return <>Check the spelling: ids and names must match exactly.</>;
  }
  return (
    <>
      First about <Time at={first.start} show="exact" />, last <Time at={last} />.
    </>
  );
}

const KINDS = [
  ["feature", "Feature"],
  ["entity_id", "Entity"],
  ["document", "Document"],
  ["chunk", "Chunk"],
  ["index", "Index"],
] as const;
type Kind = (typeof KINDS)[number][0];

/** The fields of each kind; the first one that is named like the kind is required. */
const FIELDS: Record<Kind, readonly Provenance[]> = {
  feature: ["feature", "entity_id"],
  entity_id: ["entity", "entity_id"],
  document: ["document", "index"],
  chunk: ["chunk"],
  index: ["index"],
};
const LABELS: Record<Provenance, string> = {
  feature: "Feature",
  entity: "Entity",
  entity_id: "Entity id",
  document: "Document id",
  chunk: "Chunk id",
  index: "Index",
};

type Draft = { kind: Kind; texts: Partial<Record<Provenance, string>> };

/** Asks for the kind of thing and its name. */
function Question({ filters, change }: { filters: Filters; change: Change }) {
  const asked = JSON.stringify(PROVENANCE.map((name) => filters[name] ?? ""));
  const [{ kind, texts }, setDraft] = useDraft<Draft>(asked, {
    kind: kindOf(filters),
    texts: filters,
  });
  const submit = () => {
    const none = Object.fromEntries(PROVENANCE.map((name) => [name, undefined]));
    const used = FIELDS[kind].map((name) => [name, texts[name]?.trim()] as const);
    change({ ...none, ...Object.fromEntries(used) });
  };
  return (
    <form
      className={css.question}
      aria-label="What to look for"
      onSubmit={(event) => {
        event.preventDefault();
        submit();
      }}
    >
      <Choice
        label="Kind"
        value={kind}
        onChange={(value) =>
          setDraft({ texts, kind: KINDS.find(([key]) => key === value)?.[0] ?? "feature" })
        }
        options={KINDS}
      />
      {FIELDS[kind].map((name) => (
        <Name
          key={name}
          name={name}
          isRequired={name === kind}
          text={texts[name] ?? ""}
          onChange={(text) => setDraft({ kind, texts: { ...texts, [name]: text } })}
        />
      ))}
      <TimeChoice filters={filters} change={change} />
      <Button type="submit" look="primary" disabled={!texts[kind]?.trim()}>
        Find contexts
      </Button>
    </form>
  );
}

type NameProps = {
  name: Provenance;
  isRequired: boolean;
  text: string;
  onChange: (text: string) => void;
};

/** A field: a choice of what is declared, or a text for ids, and for names that a key may not see. */
function Name({ name, isRequired, text, onChange }: NameProps) {
  const { data } = useQuery(declarations);
  const declared = {
    feature: data?.features,
    entity: data?.entities,
    index: data?.indexes,
    entity_id: null,
    document: null,
    chunk: null,
  }[name];
  if (declared === null || declared?.length === 0) {
    const Input = name === "entity_id" ? IdField : Field;
    return (
      <Input
        label={LABELS[name]}
        placeholder={isRequired ? undefined : "Any"}
        value={text}
        onChange={(event) => onChange(event.target.value)}
      />
    );
  }
  // What an address names may be declared no more.
  const names = new Set([...(text === "" ? [] : [text]), ...(declared ?? []).map((d) => d.name)]);
  return (
    <Choice
      label={LABELS[name]}
      value={text}
      onChange={onChange}
      options={[["", isRequired ? "Choose one" : "Any"], ...[...names].map((n) => [n, n] as const)]}
    />
  );
}

function kindOf(filters: Filters): Kind {
  const order: Kind[] = ["feature", "chunk", "document", "entity_id", "index"];
  return order.find((kind) => filters[kind] !== undefined) ?? "feature";
}

function Nothing({ filters }: { filters: Filters }) {
  return (
    <Empty
      title="No context saw it"
      action={<ButtonLink href="/records">See all records</ButtonLink>}
    >
      {filters.start !== undefined || filters.range !== "all"
        ? "None in this time. Choose all time to be sure."
        : "No recorded context read it, directly or behind something else."}
    </Empty>
  );
}
