import type { ReactNode } from "react";
import { Link } from "wouter";

import type { Schema } from "~/api/client";
import {
  DataTable,
  Dim,
  Mono,
  stateOfAge,
  StateWord,
  Tag,
  UserText,
  type Column,
  type State,
} from "~/design";
import { duration, inline, plural, short } from "~/design/format";
import type { Trace } from "~/xray";

import css from "./ComparePage.module.css";
import { ruleText, signed } from "./summary";
import { Words } from "./TextDiff";
import { wordDiff } from "./words";

type Diff = Schema<"ContextDiff">;
type Item = Schema<"ItemDiff">;
type Feature = Schema<"FeatureDiff">;
type Result = Schema<"ResultDiff">;

const DECISIONS: Record<string, State> = { kept: "fresh", truncated: "ageing", dropped: "unknown" };

/** The items of both contexts, paired: decision and tokens of each, and how the text changed. */
export function Items({
  diff,
  one,
  two,
  isAll,
}: {
  diff: Diff;
  one: Trace;
  two: Trace;
  isAll: boolean;
}) {
  const rows = diff.items.filter(({ change, flipped }) => isAll || flipped || change !== "same");
  if (rows.length === 0) return <p className={css.none}>No item changed.</p>;
  const columns: Column<Item>[] = [
    {
      head: "Item",
      width: "34%",
      cell: (item) => <ItemText item={item} one={one} two={two} />,
    },
    { head: "Before", cell: ({ before }) => <ItemSide side={before} /> },
    { head: "After", cell: ({ after }) => <ItemSide side={after} /> },
    { head: "Change", cell: (item) => <ItemChange item={item} /> },
    {
      head: "Tokens",
      number: true,
      width: "5.5rem",
      cell: ({ tokens_delta }) => (tokens_delta === 0 ? <Dim>±0</Dim> : signed(tokens_delta)),
    },
  ];
  return (
    <DataTable
      label="Items of both contexts"
      columns={columns}
      rows={rows}
      rowKey={({ before, after }) => `${before?.place ?? ""}/${after?.place ?? ""}`}
    />
  );
}

function ItemText({ item, one, two }: { item: Item; one: Trace; two: Trace }) {
  const before = item.before && one.items[item.before.place]?.content;
  const after = item.after && two.items[item.after.place]?.content;
  const isChanged = typeof before === "string" && typeof after === "string" && before !== after;
  return (
    <div className={css.before}>
      <UserText>{item.identity}</UserText>
      {isChanged && (
        <span className={css.words}>
          <Words parts={wordDiff(clipped(before), clipped(after))} />
        </span>
      )}
    </div>
  );
}

const LONGEST = 400;

function clipped(text: string): string {
  return text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text;
}

function ItemSide({ side }: { side: Item["before"] }) {
  if (side === null) return <Dim>not there</Dim>;
  return (
    <div className={css.before}>
      <StateWord state={DECISIONS[side.decision] ?? "unknown"}>{side.decision}</StateWord>
      <span className={css.detail}>
        {plural(side.tokens, "token")}, priority {side.priority}
      </span>
    </div>
  );
}

function ItemChange({ item }: { item: Item }) {
  if (item.flipped) {
    return (
      <div className={css.before}>
        <strong>decision flipped</strong>
        <span className={css.detail}>
          {item.before?.decision} → {item.after?.decision}: {reason(item.after?.reason)}
        </span>
      </div>
    );
  }
  return <ChangeWord change={item.change} />;
}

function reason(text: string | undefined): string {
  return (text ?? "").replaceAll("_", " ");
}

function ChangeWord({ change }: { change: Item["change"] }) {
  if (change === "same") return <Dim>same</Dim>;
  return <Tag>{change === "unknown" ? "withheld" : change}</Tag>;
}

/** The values that the contexts read, with their ages against the SLA. */
export function Values({
  features,
  one,
  two,
}: {
  features: readonly Feature[];
  one: Trace;
  two: Trace;
}) {
  if (features.length === 0) return <p className={css.none}>Neither context read a feature.</p>;
  const columns: Column<Feature>[] = [
    {
      head: "Value",
      width: "34%",
      cell: ({ feature, entity, entity_id }) => (
        <div className={css.before}>
          <Link href={`/impact?feature=${encodeURIComponent(feature)}`}>
            <Mono>{feature}</Mono>
          </Link>
          <span className={css.detail}>
            {entity} {entity_id === null ? "(withheld)" : <UserText>{entity_id}</UserText>}
          </span>
        </div>
      ),
    },
    {
      head: "Before",
      cell: (value) => <ValueSide side={value.before} sla={slaOf(one, value)} />,
    },
    { head: "After", cell: (value) => <ValueSide side={value.after} sla={slaOf(two, value)} /> },
    { head: "Change", cell: ({ change }) => <ChangeWord change={change} /> },
    {
      head: "Age",
      number: true,
      width: "5.5rem",
      cell: ({ before, after }) => {
        const [from, to] = [before?.age_ms ?? null, after?.age_ms ?? null];
        if (from === null || to === null) return <Dim>—</Dim>;
        return to >= from ? `+${duration(to - from)}` : `−${duration(from - to)}`;
      },
    },
  ];
  return (
    <DataTable
      label="Values of both contexts"
      columns={columns}
      rows={features}
      rowKey={({ feature, entity, entity_id }) => `${feature}/${entity}/${entity_id ?? ""}`}
    />
  );
}

function slaOf(trace: Trace, { feature, entity_id }: Feature): number | null {
  const read = trace.features.find(
    (each) => each.feature === feature && each.entity_id === entity_id,
  );
  return read?.sla_ms ?? null;
}

function ValueSide({ side, sla }: { side: Feature["before"]; sla: number | null }) {
  if (side === null) return <Dim>not read</Dim>;
  return (
    <div className={css.before}>
      <bdi dir="auto" className={css.value}>
        {side.value === null ? "null" : clipped(inline(side.value))}
      </bdi>
      <Age ageMs={side.age_ms} sla={sla} isFresh={side.fresh} source={side.source} />
    </div>
  );
}

function Age({
  ageMs,
  sla,
  isFresh,
  source,
}: {
  ageMs: number | null;
  sla: number | null;
  isFresh: boolean;
  source: string;
}) {
  const text = ageMs === null ? source : `${duration(ageMs)} old, ${source}`;
  if (isFresh) return <span className={css.detail}>{text}</span>;
  const state = stateOfAge(ageMs, sla) === "failed" ? "failed" : "ageing";
  return (
    <StateWord state={state}>
      {text}
      {sla === null ? "" : `, SLA ${duration(sla)}`}
    </StateWord>
  );
}

/** What the searches found, by rank. */
export function Results({ results }: { results: readonly Result[] }) {
  const moved = results.filter(({ change }) => change !== "same");
  if (results.length === 0) return <p className={css.none}>Neither context searched.</p>;
  if (moved.length === 0) return <p className={css.none}>The searches found the same.</p>;
  const side = (of: Result["before"]): ReactNode =>
    of === null ? (
      <Dim>not found</Dim>
    ) : (
      <span title={of.score ?? undefined}>
        {of.rank}. {of.score !== null && <Dim>{short(Number(of.score))}</Dim>}
      </span>
    );
  const columns: Column<Result>[] = [
    {
      head: "Result",
      width: "46%",
      cell: ({ id, retriever }) => (
        <div className={css.before}>
          {typeof id === "string" ? (
            <Link href={`/impact?chunk=${encodeURIComponent(id)}`}>
              <UserText mono>{id}</UserText>
            </Link>
          ) : (
            <Mono>{id === null ? "withheld" : inline(id)}</Mono>
          )}
          <span className={css.detail}>{retriever}</span>
        </div>
      ),
    },
    { head: "Before", number: true, cell: ({ before }) => side(before) },
    { head: "After", number: true, cell: ({ after }) => side(after) },
  ];
  return (
    <DataTable
      label="Search results of both contexts"
      columns={columns}
      rows={moved}
      rowKey={(result) =>
        JSON.stringify([result.retriever, result.id, result.before, result.after])
      }
    />
  );
}

type Value = Schema<"ValueDiff">;

/** Inputs, references and rules in which the contexts differ. */
export function Rules({ diff }: { diff: Diff }) {
  const rows: (Value & { kind: string })[] = [
    ...diff.inputs.map((value) => ({ ...value, kind: "input" })),
    ...diff.interaction_ref.map((value) => ({ ...value, kind: "reference" })),
    ...diff.rules.map((value) => ({ ...value, kind: "rule" })),
  ];
  if (rows.length === 0) return <p className={css.none}>Inputs and rules are the same.</p>;
  const text = ({ kind, name, change }: (typeof rows)[number], value: unknown) =>
    change === "unknown" && value === null ? (
      <Dim>withheld</Dim>
    ) : value === null ? (
      <Dim>none</Dim>
    ) : (
      <bdi dir="auto" className={css.value}>
        {clipped(kind === "rule" ? ruleText(name, value) : inline(value))}
      </bdi>
    );
  return (
    <DataTable
      label="Inputs and rules that differ"
      columns={[
        {
          head: "Name",
          width: "30%",
          cell: ({ name, kind }) => (
            <div className={css.before}>
              <UserText mono>{kind === "rule" ? name.replace(/_ms$/, "") : name}</UserText>
              <span className={css.detail}>{kind}</span>
            </div>
          ),
        },
        { head: "Before", cell: (row) => text(row, row.before) },
        { head: "After", cell: (row) => text(row, row.after) },
      ]}
      rows={rows}
      rowKey={({ kind, name }) => `${kind}/${name}`}
    />
  );
}
