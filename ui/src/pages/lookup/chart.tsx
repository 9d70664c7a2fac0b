/** The parts that charts over time share: their axes, their width, and their keys. */
import { useLayoutEffect, useRef, useState, type KeyboardEvent } from "react";

import css from "./HistoryChart.module.css";
import { tickText, timeTicks } from "./scales";

export const TOP = 10;
export const BOTTOM = 22;
export const RIGHT = 10;
const GAP = 8;
/** The width of a digit of a tick. */
const LETTER = 7;

/** Return the room that the labels of numbers need at the left. */
export function roomFor(ticks: readonly number[]): number {
  return Math.max(0, ...ticks.map((tick) => LETTER * tickText(tick).length + 2 * GAP));
}

/** Return the place that a key leads to among some in a row; that of before for other keys. */
export function moved(event: KeyboardEvent, selected: number, count: number): number {
  const last = count - 1;
  const next = {
    ArrowLeft: selected < 0 ? last : Math.max(0, selected - 1),
    ArrowRight: Math.min(last, selected + 1),
    Home: 0,
    End: last,
  }[event.key];
  if (next === undefined) return selected;
  event.preventDefault();
  return next;
}

/** The width of an element, and a reference to it. */
export function useWidth(): [React.RefObject<HTMLDivElement | null>, number] {
  const frame = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(560);
  useLayoutEffect(() => {
    const element = frame.current;
    if (element === null) return;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return [frame, width];
}

type AxisProps = {
  start: number;
  end: number;
  x: (moment: number) => number;
  height: number;
  width: number;
  isLocal: boolean;
};

export function TimeAxis({ start, end, x, height, width, isLocal }: AxisProps) {
  return timeTicks(start, end, Math.max(2, width / 110), isLocal).map(({ at, label }) => (
    <g key={at} className={css.tick}>
      <line x1={x(at)} x2={x(at)} y1={TOP} y2={height - BOTTOM} />
      <text
        x={Math.min(Math.max(x(at), label.length * 3.5), width - label.length * 3.5)}
        y={height - 6}
        textAnchor="middle"
        className={css.label}
      >
        {label}
      </text>
    </g>
  ));
}

type NumberAxisProps = {
  ticks: readonly number[];
  y: (value: number) => number;
  left: number;
  width: number;
};

export function NumberAxis({ ticks, y, left, width }: NumberAxisProps) {
  return ticks.map((tick) => (
    <g key={tick} className={css.tick}>
      <line x1={left} x2={width - RIGHT} y1={y(tick)} y2={y(tick)} />
      <text x={left - GAP} y={y(tick) + 4} textAnchor="end" className={css.label}>
        {tickText(tick)}
      </text>
    </g>
  ));
}
