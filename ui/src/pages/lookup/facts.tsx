/** What is known about a value, in names and values. */
import type { ReactNode } from "react";

import { Dim, Time, UserText } from "~/design";
import { duration } from "~/design/format";
import {
  accuracyWords,
  coverageWords,
  coveredSince,
  windowWords,
  type Feature,
  type Member,
} from "~/windows";

import { AgeBar } from "./AgeBar";
import type { EntityValue } from "./queries";
import { ageOf, handlerOf } from "./values";

type Fact = readonly [name: string, value: ReactNode];

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

/** Return the facts about a value of one of some features. */
export function factsOf(
  value: EntityValue,
  listing: Feature | undefined,
  features: readonly Feature[],
  now: number,
): Fact[] {
  return listing?.window
    ? windowFacts(value, listing, listing.window, features, now)
    : plainFacts(value, listing, now);
}

function plainFacts(value: EntityValue, listing: Feature | undefined, now: number): Fact[] {
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
    ["Owner", listing && ownerOf(listing)],
    ["Kept up by", listing && keptUpBy(listing)],
  ];
}

/** A value that is evaluated at the moment of the read, of the contributions that it covers. */
function windowFacts(
  value: EntityValue,
  listing: Feature,
  window: Member,
  features: readonly Feature[],
  now: number,
): Fact[] {
  const { as_of, written_at, sla_ms, rule } = value;
  const family = handlerOf(features, listing);
  const since = coveredSince(window, as_of === null ? now : Date.parse(as_of));
  return [
    ["Window", windowWords(window)],
    [
      "Covers",
      <>
        since <Time at={since} show="exact" /> <Dim>{coverageWords(window)}</Dim>
      </>,
    ],
    ["Read at", as_of && <Time at={as_of} show="exact" />],
    [
      "Last fold",
      written_at === null ? (
        <Dim>no event has contributed</Dim>
      ) : (
        <Time at={written_at} show="exact" />
      ),
    ],
    ["Accuracy", accuracyWords(window)],
    ["Freshness", sla_ms === null ? null : <AgeBar ageMs={ageOf(value, now)} slaMs={sla_ms} />],
    ["Rule", rule && RULES[rule]],
    ["Type", <code key="type">{listing.type}</code>],
    ["Owner", ownerOf(listing)],
    ["Kept up by", family && keptUpBy(family)],
  ];
}

function ownerOf({ owner }: Feature): ReactNode {
  return owner === "" ? null : <UserText>{owner}</UserText>;
}

function keptUpBy({ triggers, schedule, template, needs, mode }: Feature): string {
  if (triggers.length > 0) return `events of type ${triggers.join(", ")}`;
  if (schedule !== null) return `a run ${schedule}`;
  if (mode === "stored") return "handlers of other features and set_feature";
  if (template !== null) return `its template of ${needs.join(", ")}`;
  return "its function, when it is read";
}
