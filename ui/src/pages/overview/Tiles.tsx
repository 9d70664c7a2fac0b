import { useState, type ReactNode } from "react";

import type { Schema } from "~/api/client";
import { Card, Skeleton, Time, type State } from "~/design";
import { count, duration, percent, plural, short } from "~/design/format";

import { HourChart } from "./HourChart";
import css from "./Overview.module.css";
import { growth, highest, latest, timeOf, type Numbers } from "./series";

type Series = Schema<"Series">;
type Overview = Schema<"Overview">;

type TileProps = {
  name: string;
  series: Series;
  values: Numbers;
  show: (value: number) => readonly [value: string, unit: string];
  /** The number of this moment, which the newest point may be ten seconds older than. */
  now?: number | null;
  /** The number of the last hour; without one, the newest point stands there. */
  hour?: readonly [value: string, unit: string];
  note: ReactNode;
  state?: State | null;
  top?: number;
};

/** Return the number of a selected time, otherwise the present one. */
function numberOf(values: Numbers, selected: number | null, now?: number | null): number | null {
  return selected === null ? (now ?? latest(values)) : (values[selected] ?? null);
}

/** One number, what it means, and its last hour; a pointer reads the number of any time. */
function Tile(props: TileProps) {
  const { name, series, values, show, now, hour, note, state = null, top } = props;
  const [selected, select] = useState<number | null>(null);
  const value = numberOf(values, selected, now);
  const whole = selected === null ? hour : undefined;
  const [text, unit] = whole ?? (value === null ? ["—", ""] : show(value));
  const when = hour === undefined ? "now" : "last hour";
  const label = value === null ? `${name}: no sample yet` : `${name}: ${text} ${unit}, ${when}`;
  return (
    <Card className={css.tile}>
      <div className={css.tileHead}>
        <h2>{name}</h2>
        <span>{selected === null && when}</span>
      </div>
      <p className={css.value}>
        {text} <span className={css.unit}>{unit}</span>
      </p>
      <p className={css.note}>
        {selected === null ? (
          note
        ) : (
          <Time
            at={timeOf(series.end, series.step_seconds, values.length, selected)}
            show="exact"
          />
        )}
      </p>
      <HourChart
        values={values}
        label={label}
        state={state}
        selected={selected}
        onSelect={select}
        {...(top !== undefined && { top })}
      />
    </Card>
  );
}

const LATE_SECONDS = 60;
const SLOW_SECONDS = 5;

/** The six numbers of the whole store. */
export function Tiles({ series, overview }: { series: Series; overview: Overview }) {
  const oldest = latest(series.oldest_seconds) ?? 0;
  const letters = overview.dead_letters ?? latest(series.dead_letters) ?? 0;
  const total = overview.contexts.reduce((sum, each) => sum + each.total, 0);
  const fresh = freshShare(overview);
  return (
    <div className={css.tiles}>
      <Tile
        name="Events"
        series={series}
        values={series.accepted_per_second}
        show={(value) => [short(value), "/s"]}
        note={`${short(latest(series.processed_per_second) ?? 0)} /s handled`}
      />
      <Tile
        name="Waiting"
        series={series}
        values={series.waiting}
        now={overview.waiting}
        show={(value) => [count(value), value === 1 ? "event" : "events"]}
        note={`in ${plural(overview.partitions, "partition")}`}
      />
      <Tile
        name="Oldest waiting"
        series={series}
        values={series.oldest_seconds}
        show={(value) => (value === 0 ? ["none", ""] : splitUnit(duration(value * 1_000)))}
        note={oldest === 0 ? "nothing waits" : "since it was accepted"}
        state={oldest > LATE_SECONDS ? "failed" : oldest > SLOW_SECONDS ? "ageing" : null}
      />
      <Tile
        name="Dead letters"
        series={series}
        values={series.dead_letters}
        now={overview.dead_letters}
        show={(value) => [count(value), ""]}
        note={`${count(Math.max(0, growth(series.dead_letters)))} new in the last hour`}
        state={letters > 0 ? "failed" : null}
      />
      <Tile
        name="Contexts"
        series={series}
        values={series.contexts_per_minute}
        show={(value) => [short(value), "/min"]}
        hour={[count(total), ""]}
        note={speedOf(series, total)}
      />
      <Tile
        name="Fresh"
        series={series}
        values={series.fresh_percent}
        show={(value) => splitUnit(percent(value / 100))}
        hour={fresh === null ? ["—", ""] : splitUnit(percent(fresh))}
        note={
          fresh === null
            ? "no contexts"
            : `${count(Math.round((1 - fresh) * total))} of ${count(total)} degraded`
        }
        state={fresh === null ? null : stateOfFresh(fresh * 100)}
        top={100}
      />
    </div>
  );
}

/** Return how slow contexts were at worst in the last hour, or how many they were without a sample. */
function speedOf({ assembly_p99_ms }: Series, total: number): string {
  const slowest = highest(assembly_p99_ms);
  if (total === 0 || slowest === null) return `${short(total / 60)} /min`;
  return `p99 up to ${duration(slowest)}`;
}

/** Return the share of fresh contexts in the last hour. */
function freshShare({ contexts }: Overview): number | null {
  const total = contexts.reduce((sum, each) => sum + each.total, 0);
  const fresh = contexts.reduce((sum, each) => sum + each.total * (each.fresh_percent ?? 0), 0);
  return total === 0 ? null : fresh / total / 100;
}

/** Return the state of a share of fresh contexts. */
export function stateOfFresh(value: number | null): State {
  if (value === null) return "unknown";
  if (value >= 99) return "fresh";
  return value >= 50 ? "ageing" : "failed";
}

/** Split `1.2 s` into the number and its unit; longer durations stay together. */
function splitUnit(text: string): readonly [string, string] {
  const parts = text.split(" ");
  return parts.length === 2 ? [parts[0] ?? "", parts[1] ?? ""] : [text, ""];
}

export function TilesLoading() {
  return (
    <div className={css.tiles}>
      {["events", "waiting", "oldest", "letters", "contexts", "fresh"].map((name) => (
        <Card key={name}>
          <div className={css.tileLoading}>
            <Skeleton lines={3} />
          </div>
        </Card>
      ))}
    </div>
  );
}
