import { useState, type ReactNode } from "react";

import { UserText } from "~/design";
import { exact } from "~/design/format";
import { localTime } from "~/design/preferences";

import { BOTTOM, moved, NumberAxis, RIGHT, roomFor, TimeAxis, TOP, useWidth } from "./chart";
import css from "./HistoryChart.module.css";
import { linear, numberTicks } from "./scales";
import { brief, causeWords, isNumeric, segmentAt, stepKey, type Segment } from "./steps";

type Props = {
  segments: readonly Segment[];
  /** The selected segment; -1 for none. */
  selected: number;
  onSelect: (index: number) => void;
};

const HEIGHT = 184;
const BAND = 44;
const MOST_DOTS = 200;

/** One value over time: numbers as steps, everything else as a band of values. */
export function HistoryChart({ segments, selected, onSelect }: Props) {
  const [frame, width] = useWidth();
  const [hovered, setHovered] = useState(-1);
  const isLocal = localTime.use();
  const shown = hovered >= 0 ? hovered : selected;
  const numeric = isNumeric(segments.map(({ step }) => step));
  const ticks = numeric ? ticksOf(segments) : [];
  const left = roomFor(ticks);
  const start = segments[0]?.from ?? 0;
  const end = Math.max(...segments.map(({ to }) => to), start + 1);
  const x = linear([start, end], [left, Math.max(width - RIGHT, left + 1)]);
  const height = TOP + (numeric ? HEIGHT : BAND) + BOTTOM;
  const place = (clientX: number, target: Element) => {
    const moment = linear(
      [x(start), x(end)],
      [start, end],
    )(clientX - target.getBoundingClientRect().left);
    return segmentAt(segments, moment);
  };
  return (
    <figure>
      <Readout segment={segments[shown]} isLocal={isLocal} />
      <div
        ref={frame}
        className={css.frame}
        role="group"
        tabIndex={0}
        aria-label="History as a chart; the arrow keys select a step"
        onKeyDown={(event) => onSelect(moved(event, selected, segments.length))}
      >
        <svg
          width={width}
          height={height}
          aria-hidden
          onPointerMove={(event) => setHovered(place(event.clientX, event.currentTarget))}
          onPointerLeave={() => setHovered(-1)}
          onClick={(event) => onSelect(place(event.clientX, event.currentTarget))}
        >
          <TimeAxis {...{ start, end, x, height, width, isLocal }} />
          {numeric ? (
            <Steps {...{ segments, ticks, x, left, width, shown }} />
          ) : (
            <Bands {...{ segments, x, shown }} />
          )}
        </svg>
      </div>
    </figure>
  );
}

function Readout({ segment, isLocal }: { segment: Segment | undefined; isLocal: boolean }) {
  let words: ReactNode = "Point at the chart, or use the arrow keys, to read a value.";
  if (segment !== undefined) {
    words = (
      <>
        <strong>
          <UserText mono>{brief(segment.step.value, 60)}</UserText>
        </strong>{" "}
        since {exact(Date.parse(segment.step.as_of), { local: isLocal })} ·{" "}
        {causeWords(segment.step)}
      </>
    );
  }
  return (
    <figcaption className={css.readout} aria-live="polite">
      {words}
    </figcaption>
  );
}

type StepsProps = {
  segments: readonly Segment[];
  ticks: readonly number[];
  x: (moment: number) => number;
  left: number;
  width: number;
  shown: number;
};

function ticksOf(segments: readonly Segment[]): number[] {
  const values = segments.map(({ step }) => step.value).filter((each) => typeof each === "number");
  return numberTicks(Math.min(...values), Math.max(...values));
}

function Steps({ segments, ticks, x, left, width, shown }: StepsProps) {
  const y = linear([ticks[0] ?? 0, ticks.at(-1) ?? 1], [TOP + HEIGHT, TOP]);
  const line = segments
    .map(({ from, to, step: { value } }, index) => {
      if (typeof value !== "number") return "";
      const begins = index === 0 || typeof segments[index - 1]?.step.value !== "number";
      return `${begins ? "M" : "L"}${x(from)},${y(value)}H${x(to)}`;
    })
    .join("");
  return (
    <>
      <NumberAxis {...{ ticks, y, left, width }} />
      <path className={css.line} d={line} />
      {segments.map(({ from, step }, index) =>
        typeof step.value === "number" && (segments.length <= MOST_DOTS || index === shown) ? (
          <circle
            key={stepKey(step)}
            className={index === shown ? css.chosen : css.dot}
            cx={x(from)}
            cy={y(step.value)}
            r={index === shown ? 5 : 2.5}
          />
        ) : null,
      )}
    </>
  );
}

type BandsProps = Pick<StepsProps, "segments" | "x" | "shown">;

/** Values that are no numbers: a band for each, with as much of its text as fits. */
function Bands({ segments, x, shown }: BandsProps) {
  return segments.map(({ from, to, step }, index) => {
    const width = Math.max(x(to) - x(from), 2);
    const letters = Math.floor((width - 12) / 7.5);
    return (
      <g key={stepKey(step)}>
        <rect
          className={index === shown ? css.bandChosen : css.band}
          x={x(from)}
          y={TOP + 4}
          width={Math.max(width - 1, 1)}
          height={BAND - 8}
          rx={3}
        />
        {letters >= 2 && (
          <text
            x={x(from) + 6}
            y={TOP + BAND / 2 + 4}
            className={index === shown ? css.bandTextChosen : css.bandText}
          >
            {brief(step.value, letters - 1)}
          </text>
        )}
      </g>
    );
  });
}
