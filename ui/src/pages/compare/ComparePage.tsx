import { useQuery } from "@tanstack/react-query";
import { IconArrowsLeftRight } from "@tabler/icons-react";
import { useState } from "react";
import { Link, useSearchParams } from "wouter";

import { api, body } from "~/api/client";
import { explained } from "~/api/queries";
import {
  Button,
  ButtonLink,
  Card,
  CopyAs,
  Empty,
  ErrorPanel,
  Field,
  Id,
  IconButton,
  Loaded,
  PageHead,
  Skeleton,
  StateBadge,
  Time,
  UserText,
} from "~/design";
import { plural } from "~/design/format";
import { stateOf } from "~/pages/records/Freshness";
import type { Trace } from "~/xray";

import { aboutOf } from "./about";
import css from "./ComparePage.module.css";
import { EvaluatedComparison } from "./EvaluatedComparison";
import { explanation, Side, SideBySide } from "./SideBySide";
import { sentenceOf } from "./summary";

/** What changed between two contexts, and why. */
export default function ComparePage() {
  const [params] = useSearchParams();
  const [a, b] = [params.get("a") ?? "", params.get("b") ?? ""];
  const [cohort, run, context] = ["cohort", "run", "context"].map((name) => params.get(name));
  if (cohort && run && context) {
    return <EvaluatedComparison cohort={cohort} run={run} id={context} />;
  }
  return a && b ? <Comparison key={`${a} ${b}`} a={a} b={b} /> : <Choosing a={a || b} />;
}

function Comparison({ a, b }: { a: string; b: string }) {
  const [one, two] = [useQuery(explained(a)), useQuery(explained(b))];
  const compared = useQuery({
    queryKey: ["diff", a, b],
    queryFn: async ({ signal }) =>
      body(
        await api.GET("/v1/context/{id}/diff/{other}", {
          params: { path: { id: a, other: b } },
          signal,
        }),
      ),
    staleTime: 60_000,
  });
  const diff = compared.data;
  const unread = [compared, one, two].find(({ data, isError }) => isError && data === undefined);
  return (
    <>
      <PageHead
        tab="Compare"
        title={diff === undefined ? "Compare two contexts" : sentenceOf(diff)}
        subtitle={
          diff === undefined ? undefined : explanation(diff.tokens_before, diff.tokens_after)
        }
        actions={
          <CopyAs
            call={{
              path: `/v1/context/${a}/diff/${b}`,
              cli: ["context", "diff", a, b],
              python: `records.diff(${JSON.stringify(a)}, ${JSON.stringify(b)})`,
            }}
          />
        }
      />
      <Sides one={one.data} two={two.data} a={a} b={b} />
      {unread !== undefined ? (
        <ErrorPanel error={unread.error} retry={() => void unread.refetch()} />
      ) : diff === undefined || one.data === undefined || two.data === undefined ? (
        <Skeleton lines={12} />
      ) : (
        <SideBySide diff={diff} one={one.data} two={two.data} />
      )}
    </>
  );
}

function Sides({
  one,
  two,
  a,
  b,
}: {
  one: Trace | undefined;
  two: Trace | undefined;
  a: string;
  b: string;
}) {
  const [, setParams] = useSearchParams();
  return (
    <div className={css.sides}>
      <Side title="Before" id={a} trace={one} />
      <IconButton label="Swap the two" onClick={() => setParams({ a: b, b: a })}>
        <IconArrowsLeftRight size={16} />
      </IconButton>
      <Side title="After" id={b} trace={two} />
    </div>
  );
}

/** Asks for the context that is missing; with one given, lists the last ones of its name. */
function Choosing({ a }: { a: string }) {
  const [, setParams] = useSearchParams();
  const [first, setFirst] = useState(a);
  const [second, setSecond] = useState("");
  return (
    <>
      <PageHead
        tab="Compare"
        title="Compare two contexts"
        subtitle="See which items, values, decisions and words differ, and why."
      />
      <div className={css.cards}>
        <Card>
          <form
            className={css.form}
            onSubmit={(event) => {
              event.preventDefault();
              setParams({ a: first.trim(), b: second.trim() });
            }}
          >
            <Field
              label="Before"
              placeholder="Context id or record hash"
              value={first}
              onChange={(event) => setFirst(event.target.value)}
            />
            <Field
              label="After"
              placeholder="Context id or record hash"
              value={second}
              onChange={(event) => setSecond(event.target.value)}
            />
            <Button type="submit" look="primary" disabled={!first.trim() || !second.trim()}>
              Compare
            </Button>
          </form>
        </Card>
        {a === "" ? (
          <Empty
            title="Or choose them in a list"
            action={<ButtonLink href="/records">Records</ButtonLink>}
          >
            Tick two contexts of the list with the mouse, or with <kbd>j</kbd> <kbd>k</kbd> and{" "}
            <kbd>x</kbd>.
          </Empty>
        ) : (
          <Others id={a} />
        )}
      </div>
    </>
  );
}

/** The last contexts with the name of one, about the same entity; a click compares them. */
function Others({ id }: { id: string }) {
  const known = useQuery(explained(id));
  const name = known.data?.name;
  const about = known.data && aboutOf(known.data);
  const others = useQuery({
    queryKey: ["contexts to compare", name, about],
    queryFn: async ({ signal }) => {
      const query = { name: name ?? "", limit: 30 };
      return about === null || about === undefined
        ? body(await api.GET("/v1/contexts", { params: { query }, signal }))
        : body(
            await api.GET("/v1/contexts/by-provenance", {
              params: { query: { ...query, ...about } },
              signal,
            }),
          );
    },
    enabled: name !== undefined,
  });
  if (known.isError) {
    return <ErrorPanel error={known.error} retry={() => void known.refetch()} />;
  }
  return (
    <Card
      flush
      title={
        <>
          Compare it with one of the last contexts of its name
          {about && (
            <>
              {" "}
              that read {about.entity} <UserText mono>{about.entity_id}</UserText>
            </>
          )}
        </>
      }
    >
      <Loaded query={others}>
        {({ contexts }) => {
          const found = contexts.filter(({ context_id }) => context_id !== known.data?.context_id);
          if (found.length === 0) return <p className={css.none}>There is no other one.</p>;
          return (
            <ul className={css.others}>
              {found.map((other) => (
                <li key={other.context_id}>
                  <Link href={hrefOf(known.data, other)}>
                    <Time at={other.created_at} show="exact" />
                  </Link>
                  <Id value={other.context_id} />
                  <span>{plural(other.tokens, "token")}</span>
                  <StateBadge state={stateOf(other.freshness_status)}>
                    {other.freshness_status}
                  </StateBadge>
                </li>
              ))}
            </ul>
          );
        }}
      </Loaded>
    </Card>
  );
}

type Dated = { context_id: string; created_at: string };

/** Return the address of a comparison, the earlier context first. */
function hrefOf(one: Dated | undefined, two: Dated): string {
  if (one === undefined) return "/compare";
  const isEarlier = Date.parse(one.created_at) <= Date.parse(two.created_at);
  const [a, b] = isEarlier ? [one, two] : [two, one];
  return `/compare?a=${a.context_id}&b=${b.context_id}`;
}
