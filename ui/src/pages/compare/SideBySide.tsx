import { useState, type ReactNode } from "react";
import { Link } from "wouter";

import { Card, Choice, Id, StateBadge, Time, UserText } from "~/design";
import { count } from "~/design/format";
import { stateOf } from "~/pages/records/Freshness";
import type { Trace } from "~/xray";

import { Items, Results, Rules, Values } from "./Changes";
import css from "./ComparePage.module.css";
import { partsOf, signed } from "./summary";
import { TextDiff } from "./TextDiff";

/** Say how many tokens both contexts have. */
export function explanation(before: number, after: number): string {
  return `${count(before)} tokens before, ${count(after)} after (${signed(after - before)}).`;
}

type Diff = Parameters<typeof partsOf>[0];

/** Everything in which two contexts differ: items, values, inputs, rules, searches and the text. */
export function SideBySide({ diff, one, two }: { diff: Diff; one: Trace; two: Trace }) {
  const hasSame = diff.items.some(({ change }) => change === "same");
  const isEqual = partsOf(diff).length === 0 && diff.same_content;
  const [shown, setShown] = useState<"changed" | "all">(isEqual || !hasSame ? "all" : "changed");
  const isAll = shown === "all";
  return (
    <div className={css.cards}>
      <Card
        flush
        title="Items, aligned"
        aside={
          <Choice
            label="Items shown"
            quiet
            value={shown}
            onChange={(value) => setShown(value === "all" ? "all" : "changed")}
            options={[
              ["changed", "Only what changed"],
              ["all", "All items"],
            ]}
          />
        }
      >
        <Items diff={diff} one={one} two={two} isAll={isAll} />
      </Card>
      <Card flush title="Values and their ages" aside="when each context read them">
        <Values features={diff.features} one={one} two={two} />
      </Card>
      <div className={css.halves}>
        <Card flush title="Inputs and rules that differ">
          <Rules diff={diff} />
        </Card>
        <Card flush title="Search results">
          <Results results={diff.results} />
        </Card>
      </div>
      <Card flush title="Text" aside="words that differ are struck out or underlined">
        <TextDiff before={one.content} after={two.content} />
      </Card>
    </div>
  );
}

type SideProps = {
  title: string;
  trace: Trace | undefined;
  /** The id of a recorded context; without one it was assembled again and is not stored. */
  id?: string;
  children?: ReactNode;
};

/** Which context stands at one side. */
export function Side({ title, id, trace, children }: SideProps) {
  const name = <UserText mono>{trace?.name ?? "…"}</UserText>;
  const recorded = id === undefined ? undefined : (trace?.context_id ?? id);
  return (
    <section className={css.side} aria-label={title}>
      <h2>{title}</h2>
      <strong>
        {recorded === undefined ? name : <Link href={`/records/${recorded}`}>{name}</Link>}
      </strong>
      {recorded !== undefined && <Id value={recorded} />}
      {trace !== undefined && (
        <>
          <Time at={trace.created_at} show="exact" />
          <StateBadge state={stateOf(trace.freshness_status)}>{trace.freshness_status}</StateBadge>
        </>
      )}
      {children}
    </section>
  );
}
