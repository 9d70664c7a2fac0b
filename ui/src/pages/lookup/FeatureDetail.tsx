import { useQuery } from "@tanstack/react-query";
import { Link, useSearchParams } from "wouter";

import type { Schema } from "~/api/client";
import { useCan } from "~/api/me";
import { declarations } from "~/api/queries";
import {
  BackTitle,
  ButtonLink,
  Card,
  Code,
  CopyAs,
  Dim,
  FeatureName,
  KeyValues,
  StateBadge,
  Time,
  UserText,
  useNow,
} from "~/design";
import { duration } from "~/design/format";

import { AgeBar } from "./AgeBar";
import { HistoryCard } from "./HistoryCard";
import css from "./Lookup.module.css";
import { valueAt, type EntityValue } from "./queries";
import { brief, momentOf, stepKey, type Step } from "./steps";
import { ageOf, judged, whyNoHistory } from "./values";

type Props = { entity: string; id: string; value: EntityValue; onClose: () => void };

const SOURCES = {
  online: "stored",
  computed: "computed for this read",
  default: "the declared default: nothing is stored",
  missing: "nothing is stored, and no default is declared",
} as const;

const RULES = {
  age: null,
  caught_up: "counts from the oldest event that still waits",
  inputs: "judged by its inputs",
  dead_letter: "not fresh: an event of it is a dead letter",
} as const;

/** One value of an entity: what it says, how fresh it is, and how it came about. */
export function FeatureDetail({ entity, id, value, onClose }: Props) {
  const now = useNow();
  const { data: declared } = useQuery(declarations);
  const maySeeRecords = useCan("GET /v1/contexts/by-provenance");
  const listing = declared?.features.find(({ name }) => name === value.feature);
  const { state, word } = judged(value, now);
  const [search] = useSearchParams();
  const moment = momentOf(search.get("at"));
  const hasHistory = listing !== undefined && whyNoHistory(listing) === null;
  const recorded = useQuery(valueAt(value.feature, id, hasHistory ? moment : null)).data;
  const seen = new URLSearchParams({ feature: value.feature, entity, entity_id: id }).toString();
  return (
    <div className={css.stack}>
      <Card
        title={
          <BackTitle to="all values" onClose={onClose}>
            <FeatureName name={value.feature} />
          </BackTitle>
        }
        aside={<StateBadge state={state}>{word}</StateBadge>}
      >
        <div className={css.stack}>
          {listing?.description && <p className={css.description}>{listing.description}</p>}
          {moment !== null && recorded !== undefined && <Recorded at={moment} step={recorded} />}
          <WholeValue value={value} />
          <KeyValues rows={facts(value, listing, now)} />
          <Violations value={value} entity={entity} />
          <div className={css.actions}>
            {maySeeRecords && <ButtonLink href={`/impact?${seen}`}>Who saw it</ButtonLink>}
            <ButtonLink
              href={`/store?${new URLSearchParams({ card: `feature:${value.feature}` }).toString()}`}
            >
              Declaration
            </ButtonLink>
            <CopyAs
              call={{
                path: `/v1/features/${value.feature}?${new URLSearchParams({ entity_id: id }).toString()}`,
                cli: ["features", "get", value.feature, id],
                python: `get_feature(${JSON.stringify(value.feature)}, ${JSON.stringify(id)})`,
              }}
            />
          </div>
        </div>
      </Card>
      {/* The declaration says whether there is a history to ask for. */}
      {declared !== undefined && (
        <HistoryCard
          entity={entity}
          id={id}
          feature={value.feature}
          listing={listing}
          recorded={recorded ? stepKey(recorded) : null}
        />
      )}
    </div>
  );
}

/** What a record could know, because the page shows the value of today. */
function Recorded({ at, step }: { at: number; step: Step | null }) {
  return (
    <p className={css.recorded}>
      Value at the time of the record, <Time at={new Date(at).toISOString()} show="exact" />:{" "}
      {step === null ? (
        "none was stored"
      ) : (
        <strong>
          <UserText mono>{brief(step.value)}</UserText>
        </strong>
      )}
      . Below is the value of now.
    </p>
  );
}

function facts(
  value: EntityValue,
  listing: Schema<"FeatureListing"> | undefined,
  now: number,
): [string, React.ReactNode][] {
  const { as_of, written_at, source, sla_ms, rule } = value;
  const delay = written_at && as_of ? Date.parse(written_at) - Date.parse(as_of) : 0;
  return [
    ["As of", as_of && <Time at={as_of} show="exact" />],
    [
      "Written",
      written_at && (
        <>
          <Time at={written_at} show="exact" />
          {delay >= 1 && <Dim> {duration(delay)} later</Dim>}
        </>
      ),
    ],
    ["Source", source && SOURCES[source]],
    ["Freshness", sla_ms === null ? null : <AgeBar ageMs={ageOf(value, now)} slaMs={sla_ms} />],
    ["Rule", rule && RULES[rule]],
    ["Type", listing && <code>{listing.type}</code>],
    ["Kept up by", listing && keptUpBy(listing)],
  ];
}

function keptUpBy({ triggers, refresh_ms, template, needs }: Schema<"FeatureListing">): string {
  if (triggers.length > 0) return `events of type ${triggers.join(", ")}`;
  if (refresh_ms !== null) return `a run every ${duration(refresh_ms)}`;
  if (template !== null) return `its template of ${needs.join(", ")}`;
  return "its function, when it is read";
}

function WholeValue({ value }: { value: EntityValue }) {
  if (value.problem !== null) {
    return (
      <div role="alert" className={css.problem}>
        <strong>{value.problem.title}</strong>
        <p>
          <bdi>{value.problem.detail}</bdi>
        </p>
      </div>
    );
  }
  if (value.source === "missing") return <p className={css.none}>No value</p>;
  if (typeof value.value === "object" && value.value !== null) {
    return <Code text={JSON.stringify(value.value, null, 2)} label="Copy the value" />;
  }
  const text = typeof value.value === "string" ? value.value : JSON.stringify(value.value);
  return (
    <p dir="auto" className={text.length <= 24 ? `${css.value} ${css.large}` : css.value}>
      <UserText mono>{text === "" ? "“”" : text}</UserText>
    </p>
  );
}

function Violations({ value, entity }: { value: EntityValue; entity: string }) {
  const inputs = value.violations.filter(({ name }) => name !== value.feature);
  if (inputs.length === 0) return null;
  return (
    <ul className={css.violations} aria-label="Inputs that are not fresh">
      {inputs.map(({ name, entity_id, age_ms, sla_ms, reason }) => (
        <li key={`${name}/${entity_id}`}>
          <Link
            href={`/lookup?${new URLSearchParams({ entity, id: entity_id ?? "", feature: name }).toString()}`}
          >
            {name}
          </Link>{" "}
          {age_ms === null ? `has no moment (${reason})` : `is ${duration(age_ms)} old`}; its SLA is{" "}
          {duration(sla_ms)}
        </li>
      ))}
    </ul>
  );
}
