import { useState } from "react";

import { UserText } from "~/design";
import { exact, plural } from "~/design/format";
import { localTime } from "~/design/preferences";
import {
  cellText,
  coveredSince,
  drawn,
  hopMs,
  keyedText,
  spanMs,
  type Member,
  type Tile,
} from "~/windows";

import { BOTTOM, moved, NumberAxis, RIGHT, roomFor, TimeAxis, TOP, useWidth } from "./chart";
import css from "./HistoryChart.module.css";
import { linear, numberTicks } from "./scales";

type Props = {
  member: Member;
  /** The tiles of the member's hop, the oldest first. */
  tiles: readonly Tile[];
  /** The moment of the read. */
  at: number;
};

const HEIGHT = 120;

/** The tiles of one level as bars; the span that the window covers is marked. */
export function TilesChart({ member, tiles, at }: Props) {
  const [frame, width] = useWidth();
  const [hovered, setHovered] = useState(-1);
  const [selected, setSelected] = useState(-1);
  const isLocal = localTime.use();
  const shown = hovered >= 0 ? hovered : selected;
  const since = coveredSince(member, at);
  const bars = tiles.map((tile) => ({
    tile,
    from: Date.parse(tile.start),
    to: Date.parse(tile.end),
    height: drawn(tile.values[member.aggregate], member.aggregate),
  }));
  const isDrawn = bars.some(({ height }) => height !== null);
  const heights = bars.map(({ height }) => height ?? 0);
  const ticks = isDrawn ? numberTicks(Math.min(0, ...heights), Math.max(0, ...heights), 4) : [];
  const start = Math.min(since, ...bars.map(({ from }) => from)) - hopMs(member) / 2;
  const end = Math.max(at, ...bars.map(({ to }) => to)) + hopMs(member) / 2;
  const left = roomFor(ticks);
  const x = linear([start, end], [left, Math.max(width - RIGHT, left + 1)]);
  const y = linear([ticks[0] ?? 0, ticks.at(-1) ?? 1], [TOP + HEIGHT, TOP]);
  const place = (clientX: number, target: Element) => {
    const pixel = clientX - target.getBoundingClientRect().left;
    return bars.findIndex(({ from, to }) => x(from) <= pixel && pixel <= x(to));
  };
  const height = TOP + HEIGHT + BOTTOM;
  return (
    <figure>
      <Readout tile={tiles[shown]} member={member} since={since} isLocal={isLocal} />
      <div
        ref={frame}
        className={css.frame}
        role="group"
        tabIndex={0}
        aria-label="Tiles as a chart; the arrow keys select a tile"
        onKeyDown={(event) => setSelected(moved(event, selected, tiles.length))}
      >
        <svg
          width={width}
          height={height}
          aria-hidden
          onPointerMove={(event) => setHovered(place(event.clientX, event.currentTarget))}
          onPointerLeave={() => setHovered(-1)}
          onClick={(event) => setSelected(place(event.clientX, event.currentTarget))}
        >
          <rect
            className={css.covered}
            x={x(since)}
            y={TOP}
            width={x(at) - x(since)}
            height={HEIGHT}
          />
          <TimeAxis {...{ start, end, x, height, width, isLocal }} />
          <NumberAxis {...{ ticks, y, left, width }} />
          {bars.map(({ from, to, height: value }, index) => {
            const top = isDrawn ? y(Math.max(0, value ?? 0)) : TOP + HEIGHT / 2;
            const bottom = isDrawn ? y(Math.min(0, value ?? 0)) : TOP + HEIGHT;
            const look = from < since || from > at ? css.barOutside : css.bar;
            return (
              <rect
                key={from}
                className={index === shown ? `${look} ${css.barChosen}` : look}
                x={x(from) + 0.5}
                y={top}
                width={Math.max(1, x(to) - x(from) - 1)}
                height={Math.max(1, bottom - top)}
              />
            );
          })}
          <line
            className={css.edge}
            x1={x(at - spanMs(member))}
            x2={x(at - spanMs(member))}
            y1={TOP}
            y2={TOP + HEIGHT}
          />
        </svg>
      </div>
    </figure>
  );
}

type ReadoutProps = { tile: Tile | undefined; member: Member; since: number; isLocal: boolean };

function Readout({ tile, member, since, isLocal }: ReadoutProps) {
  if (tile === undefined) {
    return (
      <figcaption className={css.readout} aria-live="polite">
        The shaded span is covered; the dashed line is {member.window} ago. Point at a bar, or use
        the arrow keys, to read a tile.
      </figcaption>
    );
  }
  const from = Date.parse(tile.start);
  const value = tile.values[member.aggregate];
  const time = (at: number) => exact(at, { local: isLocal, seconds: hopMs(member) < 60_000 });
  return (
    <figcaption className={css.readout} aria-live="polite">
      <strong>
        <UserText mono>{shownValue(value)}</UserText>
      </strong>{" "}
      {time(from)} to {time(Date.parse(tile.end))} · {countWords(tile)}
      {from < since ? "no longer covered" : "covered"}
    </figcaption>
  );
}

/** Return the value of a tile on one line. */
export function shownValue(value: unknown): string {
  const isKeyed = typeof value === "object" && value !== null && !Array.isArray(value);
  return isKeyed ? keyedText(value) : cellText(value, 60);
}

function countWords({ values }: Tile): string {
  const { count } = values;
  return typeof count === "number" ? `${plural(count, "contribution")} · ` : "";
}
