import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link, useSearchParams } from "wouter";

import { useCan } from "~/api/me";
import { declarations } from "~/api/queries";
import {
  BackTitle,
  ButtonLink,
  Card,
  Code,
  CopyAs,
  FeatureName,
  KeyValues,
  StateBadge,
  Time,
  Unit,
  UserText,
  useNow,
} from "~/design";
import { duration } from "~/design/format";
import type { Feature } from "~/windows";

import { factsOf } from "./facts";
import { HistoryCard } from "./HistoryCard";
import { KeyTable } from "./KeyTable";
import css from "./Lookup.module.css";
import { valueAt, type EntityValue } from "./queries";
import { brief, momentOf, stepKey, type Step } from "./steps";
import { TilesCard } from "./TilesCard";
import { isKeyed, judged, triggersOf, whyNoHistory } from "./values";

type Props = { entity: string; id: string; value: EntityValue; onClose: () => void };

/** One value of an entity: what it says, how fresh it is, and how it came about. */
export function FeatureDetail({ entity, id, value, onClose }: Props) {
  const { data: declared } = useQuery(declarations);
  const features = declared?.features ?? [];
  const listing = features.find(({ name }) => name === value.feature);
  const [search] = useSearchParams();
  const moment = momentOf(search.get("at"));
  const hasHistory = listing !== undefined && whyNoHistory(listing) === null;
  const recorded = useQuery(valueAt(value.feature, id, hasHistory ? moment : null)).data;
  return (
    <div className={css.stack}>
      <ValueCard entity={entity} id={id} value={value} features={features} onClose={onClose}>
        {moment !== null && recorded !== undefined && <Recorded at={moment} step={recorded} />}
      </ValueCard>
      {/* The declaration says whether there is a history to ask for. */}
      {declared !== undefined && (
        <HistoryCard
          entity={entity}
          id={id}
          feature={value.feature}
          listing={listing}
          isKeyed={isKeyed(features, listing)}
          triggers={triggersOf(features, listing)}
          recorded={recorded ? stepKey(recorded) : null}
        />
      )}
      {listing?.window && <TilesCard name={value.feature} id={id} member={listing.window} />}
    </div>
  );
}

type CardProps = Props & { features: readonly Feature[]; children: ReactNode };

function ValueCard({ entity, id, value, features, onClose, children }: CardProps) {
  const now = useNow();
  const maySeeRecords = useCan("GET /v1/contexts/by-provenance");
  const listing = features.find(({ name }) => name === value.feature);
  const { state, word } = judged(value, now);
  const seen = new URLSearchParams({ feature: value.feature, entity, entity_id: id }).toString();
  const card = new URLSearchParams({ card: `feature:${value.feature}` }).toString();
  return (
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
        {children}
        <WholeValue value={value} unit={listing?.unit} isKeyed={isKeyed(features, listing)} />
        <KeyValues rows={factsOf(value, listing, features, now)} />
        <Violations value={value} entity={entity} />
        <div className={css.actions}>
          {maySeeRecords && <ButtonLink href={`/impact?${seen}`}>Who saw it</ButtonLink>}
          <ButtonLink href={`/store?${card}`}>Declaration</ButtonLink>
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

type WholeProps = { value: EntityValue; unit: string | undefined; isKeyed: boolean };

function WholeValue({ value, unit, isKeyed }: WholeProps) {
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
  if (isKeyed) return <KeyTable value={value.value} />;
  if (typeof value.value === "object" && value.value !== null) {
    return <Code text={JSON.stringify(value.value, null, 2)} label="Copy the value" />;
  }
  const text = typeof value.value === "string" ? value.value : JSON.stringify(value.value);
  return (
    <p dir="auto" className={text.length <= 24 ? `${css.value} ${css.large}` : css.value}>
      <UserText mono>{text === "" ? "“”" : text}</UserText>
      <Unit>{unit}</Unit>
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
