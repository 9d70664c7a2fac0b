/** The rows of the ages: one for each feature and search. Pure. */
import type { State } from "~/design";
import { duration } from "~/design/format";

import { historyOf, retrieverOf } from "./links";
import { judgedValues, type Trace } from "./model";
import { stateOf } from "./Reads";

export type AgeRow = {
  key: string;
  name: string;
  /** The entity of a value; null where it has none, or the record withholds it. */
  whose: string | null;
  title: string;
  age: number | null;
  sla: number | null;
  /** The SLA of the row where it is not that of the context. */
  ownSla: number | null;
  state: State;
  /** What is known in place of an age. */
  word: string;
  href: string | null;
};

/** Return the rows, those that are not fresh first. */
export function ageRows(trace: Trace): AgeRow[] {
  const own = (sla: number | null) => (sla === trace.freshness_sla_ms ? null : sla);
  const features = judgedValues(trace).map(({ value, read, input }): AgeRow => {
    const { age_ms: age, sla_ms: sla, entity_id: whose } = value;
    const of = whose === null ? "" : ` of ${whose}`;
    return {
      key: `feature ${read}/${input ?? ""}`,
      name: value.feature,
      whose,
      title: `${value.feature}${of}: ${value.source}, rule ${value.rule}`,
      age,
      sla,
      ownSla: own(sla),
      state: stateOf(value),
      word: age === null ? value.source : duration(age),
      href: historyOf(value, trace.created_at),
    };
  });
  const searches = trace.retrievers.map((search, at): AgeRow => {
    const { age_ms: age, sla_ms: sla, failed } = search;
    return {
      key: `search ${at}`,
      name: search.retriever,
      whose: null,
      title: `${search.retriever}: ${search.cache_hit ? "from the cache" : "new search"}`,
      age: failed ? null : age,
      sla,
      ownSla: own(sla),
      state: failed ? "failed" : stateOf(search),
      word: failed ? "failed" : duration(age),
      href: retrieverOf(search.retriever),
    };
  });
  const late = ({ state }: AgeRow) => Number(state === "fresh");
  return [...features, ...searches].sort((one, two) => late(one) - late(two));
}
