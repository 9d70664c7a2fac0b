import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useLayoutEffect, useRef, type KeyboardEvent, type RefObject } from "react";

import { Tag, UserText } from "~/design";
import { inline } from "~/design/format";

import css from "./Events.module.css";
import { Clock } from "./Clock";
import type { Shown } from "./tail";

const ROW_HEIGHT = 36;
const MOVES: Readonly<Record<string, number>> = {
  ArrowDown: 1,
  j: 1,
  ArrowUp: -1,
  k: -1,
  PageDown: 10,
  PageUp: -10,
  Home: -Infinity,
  End: Infinity,
};

type Props = {
  events: readonly Shown[];
  selected: Shown | undefined;
  onSelect: (event: Shown) => void;
  /** Show when events happened, by which past ones are sorted, and not when they were accepted. */
  isPast: boolean;
  /** Called when the end of the list is near. */
  onEnd?: (() => void) | undefined;
};

/** Events, one row for each; only the rows in sight are drawn. */
export function EventList({ events, selected, onSelect, isPast, onEnd }: Props) {
  const frame = useRef<HTMLDivElement>(null);
  // The compiler of React leaves components that use this hook as they are.
  // eslint-disable-next-line react-hooks/incompatible-library
  const rows = useVirtualizer({
    count: events.length,
    getScrollElement: () => frame.current,
    estimateSize: () => ROW_HEIGHT,
    getItemKey: (index) => events[index]?.key ?? index,
    overscan: 8,
  });
  useStillRows(frame, events);
  const items = rows.getVirtualItems();
  const last = items.at(-1)?.index ?? 0;
  useEffect(() => {
    if (onEnd !== undefined && events.length > 0 && last >= events.length - 5) onEnd();
  }, [last, events.length, onEnd]);
  const at = selected === undefined ? -1 : events.findIndex(({ key }) => key === selected.key);
  const move = (event: KeyboardEvent) => {
    const by = MOVES[event.key];
    if (by === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const index = Math.max(0, Math.min(events.length - 1, (at < 0 ? -Math.sign(by) : at) + by));
    const next = events[at < 0 ? 0 : index];
    if (next === undefined) return;
    rows.scrollToIndex(at < 0 ? 0 : index);
    onSelect(next);
  };
  return (
    <div
      ref={frame}
      className={css.rows}
      role="listbox"
      aria-label="Events"
      tabIndex={0}
      onKeyDown={move}
      aria-activedescendant={at < 0 ? undefined : `event-${selected?.key}`}
    >
      <div role="presentation" className={css.all} style={{ height: rows.getTotalSize() }}>
        {items.map(({ index, start }) => {
          const event = events[index];
          return event === undefined ? null : (
            <Row
              key={event.key}
              event={event}
              top={start}
              position={index + 1}
              count={events.length}
              isPast={isPast}
              isSelected={index === at}
              onSelect={onSelect}
            />
          );
        })}
      </div>
    </div>
  );
}

/** Keep the rows that are read in their place while others arrive above them. */
function useStillRows(frame: RefObject<HTMLDivElement | null>, events: readonly Shown[]): void {
  const first = useRef(events[0]?.key);
  useLayoutEffect(() => {
    const added = events.findIndex(({ key }) => key === first.current);
    first.current = events[0]?.key;
    const list = frame.current;
    if (list !== null && list.scrollTop > 0 && added > 0) list.scrollBy(0, added * ROW_HEIGHT);
  }, [frame, events]);
}

type RowProps = {
  event: Shown;
  isPast: boolean;
  top: number;
  position: number;
  count: number;
  isSelected: boolean;
  onSelect: (event: Shown) => void;
};

export function Row({
  event: shown,
  isPast,
  top,
  position,
  count,
  isSelected,
  onSelect,
}: RowProps) {
  const { event } = shown;
  return (
    <div
      id={`event-${shown.key}`}
      className={isPast ? `${css.row} ${css.past}` : css.row}
      role="option"
      aria-selected={isSelected}
      aria-setsize={count}
      aria-posinset={position}
      style={{ transform: `translateY(${top}px)` }}
      onClick={() => onSelect(shown)}
    >
      <Clock
        at={isPast ? (event.timestamp ?? shown.received_at) : shown.received_at}
        isDated={isPast}
      />
      <span className={css.type}>
        <Tag>
          <bdi className={css.cut}>{event.event_type}</bdi>
        </Tag>
      </span>
      <span className={css.entity}>
        <UserText>{event.entity_id}</UserText>
      </span>
      <span className={css.preview}>
        <bdi>{inline(event.payload)}</bdi>
      </span>
    </div>
  );
}
