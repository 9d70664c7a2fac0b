import { Link } from "wouter";

import type { Schema } from "~/api/client";
import { useCan } from "~/api/me";
import { Card, Dim, KeyValues, StateBadge, StateWord, Time, UserText, type State } from "~/design";
import { count, duration, plural } from "~/design/format";

type CardData = Schema<"DeclarationCard">;
type Sample = Schema<"ValueSample">;

/** How a declaration does: ages of values, last run, schedule, errors. */
export function ActivityRows({ card }: { card: CardData }) {
  const { values, schedule, last_run_at, dead_letters } = card.activity;
  if (card.context) return <ContextActivity lastRun={last_run_at} />;
  if (!card.feature || (values ?? schedule ?? dead_letters) === null) return null;
  const sla = card.feature.freshness_sla_ms;
  return (
    <Card title="Activity" aside={<Health activity={card.activity} sla={sla} />}>
      <KeyValues
        rows={[
          ["Last written", values && <LastRun at={last_run_at} />],
          ["Values", values && <Values sample={values} />],
          ["Age", values && <Ages sample={values} sla={sla} />],
          ["Schedule", schedule && <Due schedule={schedule} of={card.activity} />],
          ["Dead letters", dead_letters && <Letters of={dead_letters} feature={card.name} />],
          ["Breaker", card.breaker_open === true ? <OpenBreaker /> : null],
        ]}
      />
    </Card>
  );
}

function OpenBreaker() {
  return <StateWord state="failed">open: its events get one attempt each</StateWord>;
}

function ContextActivity({ lastRun }: { lastRun: string | null }) {
  const mayKnow = useCan("GET /v1/contexts");
  if (!mayKnow) return null;
  return (
    <Card title="Activity">
      <KeyValues rows={[["Last recorded", <LastRun key="last" at={lastRun} />]]} />
    </Card>
  );
}

function LastRun({ at }: { at: string | null }) {
  return at === null ? <Dim>not yet</Dim> : <Time at={at} />;
}

function Due({ schedule, of }: { schedule: Schema<"CardSchedule">; of: CardData["activity"] }) {
  return (
    <>
      was due <Time at={schedule.last_due} />, next <Time at={schedule.next_due} />
      {of.refresh_failure && <Failing refresh={of.refresh_failure} />}
    </>
  );
}

function Failing({ refresh: { since, error } }: { refresh: Schema<"RefreshFailure"> }) {
  return (
    <div>
      <StateWord state="failed">
        fails since <Time at={since} show="exact" />
      </StateWord>
      <div>
        {error === null ? (
          <Dim>A key with the scope admin shows the error.</Dim>
        ) : (
          <UserText mono>{error}</UserText>
        )}
      </div>
    </div>
  );
}

function Health({ activity, sla }: { activity: CardData["activity"]; sla: number | null }) {
  const { values, refresh_failure, dead_letters } = activity;
  if (refresh_failure !== null || (dead_letters !== null && dead_letters.count > 0)) {
    return <StateBadge state="failed">failing</StateBadge>;
  }
  if (values === null || sla === null || values.values === 0) return null;
  const late = values.values - (values.within_sla ?? 0);
  const state: State = late === 0 ? "fresh" : late === values.values ? "failed" : "ageing";
  return (
    <StateBadge state={state}>{late === 0 ? "within SLA" : `${count(late)} beyond SLA`}</StateBadge>
  );
}

function Values({ sample }: { sample: Sample }) {
  const { values, entities, expired, is_complete } = sample;
  return (
    <>
      {count(values)} of {is_complete ? "" : "the first "}
      {plural(entities, "entity", "entities")}
      {expired > 0 && <Dim>, {count(expired)} expired</Dim>}
    </>
  );
}

function Ages({ sample, sla }: { sample: Sample; sla: number | null }) {
  const { newest_age_ms, median_age_ms, oldest_age_ms } = sample;
  if (newest_age_ms === null || oldest_age_ms === null || median_age_ms === null) {
    return <Dim>—</Dim>;
  }
  const [newest, oldest] = [duration(newest_age_ms), duration(oldest_age_ms)];
  return (
    <>
      {newest === oldest ? newest : `${newest} to ${oldest}`}
      <Dim>
        {newest !== oldest && `, median ${duration(median_age_ms)}`}
        {sla !== null && `; SLA ${duration(sla)}`}
      </Dim>
    </>
  );
}

function Letters({ of, feature }: { of: Schema<"LetterCount">; feature: string }) {
  const mayReview = useCan("GET /v1/dead-letters");
  if (of.count === 0) return <Dim>{of.is_complete ? "none" : "none among the newest"}</Dim>;
  const href = `/dead-letters?feature=${encodeURIComponent(feature)}`;
  return (
    <StateWord state="failed">
      {count(of.count)}
      {!of.is_complete && " or more"} {mayReview && <Link href={href}>Review</Link>}
    </StateWord>
  );
}
