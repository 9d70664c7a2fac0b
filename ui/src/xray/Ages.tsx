import { useElementSize } from "@mantine/hooks";
import { useMemo, useState } from "react";
import { Link } from "wouter";

import { useMayOpen } from "~/app/allowed";
import { Button, Card, Dim, StateWord } from "~/design";
import { duration, plural, shortened } from "~/design/format";

import { ageRows, type AgeRow } from "./ageRows";
import { axisOf } from "./ages";
import type { TraceView } from "./model";
import css from "./Ages.module.css";

const SHOWN = 12;
/** The width that the label of a tick needs. */
const TICK_PX = 72;

/** One row for each feature and search: its age when it was read, and the SLA as a line. */
export function Ages({ view }: { view: TraceView }) {
  const [isWhole, setWhole] = useState(false);
  const rows = useMemo(() => ageRows(view.trace), [view]);
  const shown = isWhole ? rows : rows.slice(0, SHOWN);
  const known = rows.flatMap(({ age, sla }) => [age, sla]).filter((ms) => ms !== null);
  const { ref, width } = useElementSize();
  const axis = axisOf(known, Math.max(2, Math.floor(width / TICK_PX)));
  const { freshness_sla_ms: sla } = view.trace;
  return (
    <Card
      title="Age when it was read"
      aside={sla === null ? "the context has no SLA" : `SLA of the context ${duration(sla)}`}
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
              <Name row={row} />
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
                {row.ownSla !== null && <Dim>SLA {duration(row.ownSla)}</Dim>}
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
            <Button look="quiet" className={css.more} onClick={() => setWhole(true)}>
              Show {plural(rows.length - shown.length, "more row")}
            </Button>
          )}
        </div>
      )}
    </Card>
  );
}

/** What was read, and whose value it is; it leads to the history of the value. */
function Name({ row: { name, whose, state, href } }: { row: AgeRow }) {
  const mayOpen = useMayOpen();
  const words = (
    <>
      <bdi>{name}</bdi>
      {whose !== null && (
        <>
          {" "}
          <bdi className={css.whose}>{shortened(whose, 10, 4)}</bdi>
        </>
      )}
    </>
  );
  return (
    <span className={css.name} data-state={state}>
      {href !== null && mayOpen(href) ? <Link href={href}>{words}</Link> : words}
    </span>
  );
}

const percent = (share: number): string => `${share * 100}%`;
