import type { PointerEvent } from "react";

import type { State } from "~/design";

import css from "./HourChart.module.css";
import { bounds, lines, type Numbers } from "./series";

type Props = {
  values: Numbers;
  /** What the line shows: it is read aloud. */
  label: string;
  state?: State | null;
  /** The largest possible value of a share. */
  top?: number;
  selected?: number | null;
  onSelect?: (index: number | null) => void;
  size?: "tile" | "row";
};

const WIDTH = 1_000;
const HEIGHT = 100;

/** The shape of the last hour: a line over an area, without axes. */
export function HourChart({
  values,
  label,
  state = null,
  top,
  selected = null,
  onSelect,
  size = "tile",
}: Props) {
  const axis = bounds(values, top);
  const runs = lines(values, axis).map((run) =>
    run.map(([x, y]) => [x * WIDTH, HEIGHT - y * HEIGHT] as const),
  );
  const dot = runs.at(-1)?.at(-1);
  const select = (event: PointerEvent<SVGSVGElement>) => {
    const box = event.currentTarget.getBoundingClientRect();
    const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    onSelect?.(Math.round(share * (values.length - 1)));
  };
  const x = selected === null ? 0 : (selected / Math.max(values.length - 1, 1)) * WIDTH;
  return (
    <svg
      className={`${css.chart} ${css[size]}`}
      data-state={state ?? undefined}
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      preserveAspectRatio="none"
      role="img"
      aria-label={label}
      {...(onSelect && { onPointerMove: select, onPointerLeave: () => onSelect(null) })}
    >
      <line className={css.ground} x1={0} x2={WIDTH} y1={HEIGHT} y2={HEIGHT} />
      {runs.map((run, index) => (
        <g key={index}>
          <path className={css.area} d={area(run)} />
          <path className={css.line} d={path(run)} />
        </g>
      ))}
      {dot && <path className={css.dot} d={`M${dot[0].toFixed(1)} ${dot[1].toFixed(1)}h0.01`} />}
      {selected !== null && <line className={css.cursor} x1={x} x2={x} y1={0} y2={HEIGHT} />}
    </svg>
  );
}

type Points = readonly (readonly [number, number])[];

function path(points: Points): string {
  return `M${points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L")}`;
}

function area(points: Points): string {
  const [first] = points;
  const last = points.at(-1);
  if (!first || !last) return "";
  return `${path(points)}L${last[0].toFixed(1)} ${HEIGHT}L${first[0].toFixed(1)} ${HEIGHT}Z`;
}
