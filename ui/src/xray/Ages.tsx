import { useElementSize } from "@mantine/hooks";
import { useMemo, useState } from "react";

import { Button, Card, StateWord, type State } from "~/design";
import { duration, plural } from "~/design/format";

import { axisOf } from "./ages";
import { judgedValues, type TraceView } from "./model";
import { stateOf } from "./Reads";
import css from "./Ages.module.css";

const SHOWN = 12;
/** The width that the label of a tick needs. */
const TICK_PX = 72;

type AgeRow = {
  key: string;
  name: string;
  title: string;
  age: number | null;
  sla: number | null;
  state: State;
  /** What is known in place of an age. */
  word: string;
};

/** One row for each feature and search: its age when it was read, and the SLA as a line. */
export function Ages({ view }: { view: TraceView }) {
  const [isWhole, setWhole] = useState(false);
  const rows = useMemo(() => rowsOf(view), [view]);
  const shown = isWhole ? rows : rows.slice(0, SHOWN);
  const known = rows.flatMap(({ age, sla }) => [age, sla]).filter((ms) => ms !== null);
  const { ref, width } = useElementSize();
  const axis = axisOf(known, Math.max(2, Math.floor(width / TICK_PX)));
  const { freshness_sla_ms: sla } = view.trace;
  return (
    <Card
      title="Age when it was read"
      aside={sla === null ? "no SLA" : `SLA ${duration(sla)}`}
      flush
    >
      {rows.length === 0 ? (
        <p className={css.none}>
          The function read no feature and searched nothing
          {view.trace.contexts.length > 0 ? "; the contexts inside it may have." : "."}
        </p>
      ) : (
        <div className={css.chart}>
          {shown.map((row) => (
            <div key={row.key} className={css.row} title={row.title}>
              <bdi className={css.name} data-state={row.state}>
                {row.name}
              </bdi>
              <div className={css.track}>
                {axis.ticks.map((tick) => (
                  <i key={tick} className={css.grid} style={{ left: percent(axis.at(tick)) }} />
                ))}
                {row.sla !== null && (
                  <i className={css.late} style={{ left: percent(axis.at(row.sla)) }} />
                )}
                {row.age !== null && (
                  <i
                    className={css.dot}
                    data-state={row.state}
                    style={{ left: percent(axis.at(row.age)) }}
                  />
                )}
              </div>
              <span className={css.age}>
                {row.state === "fresh" || row.state === "unknown" ? (
                  row.word
                ) : (
                  <StateWord state={row.state}>{row.word}</StateWord>
                )}
              </span>
            </div>
          ))}
          <div className={css.axis} aria-hidden>
            <span />
            <div ref={ref} className={css.track}>
              {axis.ticks.map((tick) => (
                <span key={tick} className={css.tick} style={{ left: percent(axis.at(tick)) }}>
                  {duration(tick)}
                </span>
              ))}
            </div>
          </div>
          {rows.length > shown.length && (
            <Button look="quiet" onClick={() => setWhole(true)}>
              Show {plural(rows.length - shown.length, "more row")}
            </Button>
          )}
        </div>
      )}
    </Card>
  );
}

function rowsOf({ trace }: TraceView): AgeRow[] {
  const features = judgedValues(trace).map(({ value, read, input }): AgeRow => {
    const { age_ms: age, sla_ms: sla } = value;
    const whose = value.entity_id === null ? "" : ` of ${value.entity_id}`;
    return {
      key: `feature ${read}/${input ?? ""}`,
      name: value.feature,
      title: `${value.feature}${whose}: ${value.source}, rule ${value.rule}`,
      age,
      sla,
      state: stateOf(value),
      word: age === null ? value.source : duration(age),
    };
  });
  const searches = trace.retrievers.map((search, at): AgeRow => {
    const { age_ms: age, sla_ms: sla, failed } = search;
    return {
      key: `search ${at}`,
      name: search.retriever,
      title: `${search.retriever}: ${search.cache_hit ? "from the cache" : "new search"}`,
      age: failed ? null : age,
      sla,
      state: failed ? "failed" : stateOf(search),
      word: failed ? "failed" : duration(age),
    };
  });
  const late = ({ state }: AgeRow) => Number(state === "fresh");
  return [...features, ...searches].sort((one, two) => late(one) - late(two));
}

const percent = (share: number): string => `${share * 100}%`;
