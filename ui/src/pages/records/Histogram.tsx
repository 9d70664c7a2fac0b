import { useMemo, useRef, useState, type KeyboardEvent, type PointerEvent } from "react";

import { count, exact, plural } from "~/design/format";
import { localTime } from "~/design/preferences";

import { STATUSES } from "./filters";
import { stateOf } from "./Freshness";
import css from "./Histogram.module.css";
import type { Histogram as Data } from "./queries";

type Span = { from: number; to: number };
type Props = {
  data: Data;
  /** Called with a range that the reader marked. */
  onRange: (start: string, end: string) => void;
};

/** Contexts over time, stacked by freshness. Marking a range, by mouse or by keys, selects it. */
export function Histogram({ data, onRange }: Props) {
  const isLocal = localTime.use();
  const plot = useRef<HTMLDivElement>(null);
  const [mark, setMark] = useState<Span | null>(null);
  const [hovered, setHovered] = useState<number | null>(null);
  const [isDragging, setDragging] = useState(false);
  const slots = useMemo(() => slotsOf(data), [data]);
  const highest = Math.max(1, ...data.buckets.map((bucket) => bucket.contexts));
  const width = data.seconds * 1_000;
  const first = Date.parse(data.start ?? "");
  const timeOf = (place: number) => first + place * width;
  const shownTime = (time: number) =>
    exact(time, { local: isLocal, seconds: data.seconds % 60 !== 0 });
  const clamp = (place: number) => Math.min(Math.max(place, 0), slots.length - 1);

  const placeOf = (event: PointerEvent) => {
    const { left, width: pixels } = event.currentTarget.getBoundingClientRect();
    return clamp(Math.floor(((event.clientX - left) / pixels) * slots.length));
  };
  const select = ({ from, to }: Span) => {
    const [low, high] = [Math.min(from, to), Math.max(from, to)];
    setMark(null);
    onRange(new Date(timeOf(low)).toISOString(), new Date(timeOf(high + 1)).toISOString());
  };
  const onKey = (event: KeyboardEvent) => {
    const targets: Record<string, number> = {
      ArrowLeft: (mark?.to ?? slots.length) - 1,
      ArrowRight: (mark?.to ?? slots.length) + 1,
      Home: 0,
      End: slots.length - 1,
    };
    const to = targets[event.key];
    if (to !== undefined) {
      setMark({ from: event.shiftKey && mark ? mark.from : clamp(to), to: clamp(to) });
    } else if (event.key === "Enter" && mark) select(mark);
    else if (event.key === "Escape") setMark(null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  const shown = mark ?? (hovered === null ? null : { from: hovered, to: hovered });
  const describe = ({ from, to }: Span) => {
    const [low, high] = [Math.min(from, to), Math.max(from, to)];
    const inside = slots.slice(low, high + 1);
    const total = inside.reduce((sum, slot) => sum + (slot?.contexts ?? 0), 0);
    const parts = STATUSES.slice(1).flatMap((status) => {
      const of = inside.reduce((sum, slot) => sum + (slot?.freshness?.[status] ?? 0), 0);
      return of > 0 ? [`${count(of)} ${status}`] : [];
    });
    const times = `${shownTime(timeOf(low))} – ${shownTime(timeOf(high + 1))}`;
    return [times, plural(total, "context"), ...parts].join(" · ");
  };

  return (
    <figure className={css.figure}>
      <figcaption className={css.caption} aria-live="polite">
        {shown ? (
          <span className={css.readout}>{describe(shown)}</span>
        ) : (
          <span>
            Drag over bars to select a time range.
            <span className={css.keys}> With keys: ← → and Shift, then Enter.</span>
          </span>
        )}
      </figcaption>
      <div className={css.chart}>
        <span className={css.highest}>{count(highest)}</span>
        <div
          ref={plot}
          className={css.plot}
          role="slider"
          tabIndex={0}
          aria-label="Contexts over time"
          aria-valuemin={0}
          aria-valuemax={slots.length - 1}
          aria-valuenow={shown?.to ?? slots.length - 1}
          aria-valuetext={shown ? describe(shown) : plural(data.contexts, "context")}
          onKeyDown={onKey}
          onBlur={() => setMark(null)}
          onPointerDown={(event) => {
            if (event.button !== 0) return;
            event.currentTarget.setPointerCapture(event.pointerId);
            setDragging(true);
            setMark({ from: placeOf(event), to: placeOf(event) });
          }}
          onPointerMove={(event) => {
            const place = placeOf(event);
            setHovered(place);
            if (isDragging) setMark((known) => ({ from: known?.from ?? place, to: place }));
          }}
          onPointerUp={(event) => {
            if (!isDragging) return;
            setDragging(false);
            select({ from: mark?.from ?? placeOf(event), to: placeOf(event) });
          }}
          onPointerCancel={() => {
            setDragging(false);
            setMark(null);
          }}
          onPointerLeave={() => setHovered(null)}
        >
          {slots.map((slot, place) => (
            <div key={place} className={place === hovered ? css.hovered : css.slot}>
              {slot === null ? (
                <div className={css.uncounted} />
              ) : (
                STATUSES.map((status) => (
                  <div
                    key={status}
                    className={css.part}
                    data-state={stateOf(status)}
                    style={{ height: heightOf(slot, status, highest) }}
                  />
                ))
              )}
            </div>
          ))}
          {mark && (
            <div
              className={css.mark}
              style={{
                left: `${(Math.min(mark.from, mark.to) / slots.length) * 100}%`,
                width: `${((Math.abs(mark.to - mark.from) + 1) / slots.length) * 100}%`,
              }}
            />
          )}
        </div>
      </div>
      <div className={css.axis} aria-hidden>
        {[0, 0.5, 1].map((share) => (
          <span key={share}>{shownTime(timeOf(share * slots.length))}</span>
        ))}
      </div>
      {data.counted_from !== null && (
        <p className={css.note}>
          Hatched times were not counted: there are too many contexts. Choose a shorter range.
        </p>
      )}
    </figure>
  );
}

type Bucket = Data["buckets"][number];

/** Return one slot for each interval from start to end; null where it was not counted. */
function slotsOf({ start, end, seconds, buckets }: Data): (Bucket | null)[] {
  if (start === null || end === null || seconds <= 0) return [];
  const number = Math.round((Date.parse(end) - Date.parse(start)) / (seconds * 1_000));
  const missing = Math.max(0, number - buckets.length);
  return [...Array<null>(missing).fill(null), ...buckets];
}

/** Return the height of a part of a bar. A context that is there is at least one pixel high. */
function heightOf(bucket: Bucket, status: (typeof STATUSES)[number], highest: number): string {
  // Without a split all are shown in the colour of the first one, which css makes neutral.
  const all = status === STATUSES[0] ? bucket.contexts : 0;
  const part = bucket.freshness?.[status] ?? (bucket.freshness === null ? all : 0);
  return part === 0 ? "0" : `max(2px, ${(part / highest) * 100}%)`;
}
