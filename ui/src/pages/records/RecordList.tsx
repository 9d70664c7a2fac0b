import { useMediaQuery } from "@mantine/hooks";
import { useVirtualizer } from "@tanstack/react-virtual";
import { IconEraser, IconSignature } from "@tabler/icons-react";
import { memo, useEffect, useRef, useState } from "react";
import { Link, useLocation } from "wouter";

import { isTyping } from "~/app/keys";
import { Dim, Id, Time, UserText } from "~/design";
import { count, money } from "~/design/format";

import { Freshness } from "./Freshness";
import type { Summary } from "./queries";
import css from "./RecordList.module.css";
import type { Ticks } from "./Ticked";

const HEIGHT = 36;
const PHONE_HEIGHT = 60;
const STEP = 10;

type Props = {
  label: string;
  rows: readonly Summary[];
  /** How many there are in all, as far as that is known. */
  total: number | null;
  /** Read more rows, or undefined if these are all. */
  more?: (() => void) | undefined;
  ticks: Ticks;
  /** The list remembers its place under this name, so that going back finds it. */
  place: string;
};

/** The active row and the offset of each list. */
const places = new Map<string, { active: number; offset: number }>();

/** An endless list of contexts: only visible rows are in the page; keys move, open and tick. */
export function RecordList({ label, rows, total, more, ticks, place }: Props) {
  const scroller = useRef<HTMLDivElement>(null);
  const isPhone = useMediaQuery("(max-width: 640px)", false, { getInitialValueInEffect: false });
  const height = isPhone ? PHONE_HEIGHT : HEIGHT;
  const [known] = useState(() => places.get(place) ?? { active: -1, offset: 0 });
  const [active, setActive] = useState(known.active);
  // eslint-disable-next-line react-hooks/incompatible-library -- its result is not memoized here
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => height,
    overscan: 12,
    initialOffset: known.offset,
  });
  useEffect(() => virtual.measure(), [virtual, height]);
  const items = virtual.getVirtualItems();
  const last = items.at(-1)?.index ?? -1;
  useEffect(() => {
    if (more && last >= rows.length - 1 - STEP * 2) more();
  }, [more, last, rows.length]);

  const move = (to: number) => {
    const next = Math.min(Math.max(to, 0), rows.length - 1);
    setActive(next);
    virtual.scrollToIndex(next);
  };
  useKeys(active, rows, { move, tick: ticks.toggle });
  useEffect(() => {
    places.set(place, { active, offset: virtual.scrollOffset ?? known.offset });
  });

  return (
    <div
      ref={scroller}
      className={css.scroller}
      role="grid"
      aria-label={label}
      aria-rowcount={total === null ? -1 : total + 1}
      aria-multiselectable
      aria-activedescendant={
        items.some(({ index }) => index === active) ? rowId(place, active) : undefined
      }
      tabIndex={0}
    >
      <div role="rowgroup" className={css.head}>
        <div role="row" aria-rowindex={1} className={css.row}>
          <Head name="Tick" className={css.tick} isHidden />
          <Head name="When" className={css.when} />
          <Head name="Context" className={css.name} />
          <Head name="Id" className={css.id} />
          <Head name="Freshness" className={css.freshness} />
          <Head name="Tokens" className={css.tokens} />
          <Head name="Dropped" className={css.dropped} />
          <Head name="Cost" className={css.cost} />
          <Head name="Model" className={css.model} />
          <Head name="Caller" className={css.caller} />
          <Head name="Record" className={css.record} isHidden />
        </div>
      </div>
      <div role="rowgroup" className={css.body} style={{ height: virtual.getTotalSize() }}>
        {items.map(({ index, start }) => {
          const row = rows[index];
          return row === undefined ? null : (
            <Row
              key={row.context_id}
              id={rowId(place, index)}
              row={row}
              index={index}
              top={start}
              height={height}
              isActive={index === active}
              isTicked={ticks.ids.includes(row.context_id)}
              onTick={ticks.toggle}
              onPoint={setActive}
            />
          );
        })}
      </div>
    </div>
  );
}

type Actions = { move: (to: number) => void; tick: (row: Summary) => void };

/** Let keys move in the list wherever the focus is, unless it is in a field or a dialog. */
function useKeys(active: number, rows: readonly Summary[], actions: Actions) {
  const [, navigate] = useLocation();
  const latest = useRef({ active, rows, actions });
  useEffect(() => {
    latest.current = { active, rows, actions };
  });
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (isTyping(event) || isElsewhere(event)) return;
      const { active, rows, actions } = latest.current;
      const row = rows[active];
      const steps: Record<string, number> = {
        j: active + 1,
        ArrowDown: active + 1,
        k: active - 1,
        ArrowUp: active - 1,
        PageDown: active + STEP,
        PageUp: active - STEP,
        Home: 0,
        End: rows.length - 1,
      };
      const to = steps[event.key];
      if (to !== undefined && rows.length > 0) actions.move(to);
      else if (event.key === "Enter" && row) navigate(`/records/${row.context_id}`);
      else if (event.key === "x" && row) actions.tick(row);
      else return;
      event.preventDefault();
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, [navigate]);
}

/** Return whether a key belongs to a button, a link, a menu or a chart that has the focus. */
function isElsewhere({ key, target, defaultPrevented }: KeyboardEvent): boolean {
  if (defaultPrevented || !(target instanceof HTMLElement)) return defaultPrevented;
  if (target.closest("[role=menu], [role=slider]")) return true;
  return key === "Enter" && target.closest("button, a") !== null;
}

type RowProps = {
  id: string;
  row: Summary;
  index: number;
  top: number;
  height: number;
  isActive: boolean;
  isTicked: boolean;
  onTick: (row: Summary) => void;
  onPoint: (index: number) => void;
};

const Row = memo(function Row(props: RowProps) {
  const { row, index, isActive, isTicked, onTick, onPoint } = props;
  const [, navigate] = useLocation();
  const href = `/records/${row.context_id}`;
  return (
    <div
      id={props.id}
      role="row"
      aria-rowindex={index + 2}
      aria-selected={isTicked}
      className={`${css.row} ${css.opens} ${isActive ? css.active : ""}`}
      style={{ height: props.height, transform: `translateY(${props.top}px)` }}
      onClick={() => navigate(href)}
      onMouseDown={() => onPoint(index)}
    >
      <span role="gridcell" className={css.tick} onClick={(event) => event.stopPropagation()}>
        <input
          type="checkbox"
          tabIndex={-1}
          aria-label={`Compare ${row.context_id}`}
          checked={isTicked}
          onChange={() => onTick(row)}
        />
      </span>
      <span role="gridcell" className={css.when}>
        <Time at={row.created_at} show="recent" />
      </span>
      <span role="gridcell" className={css.name}>
        <Link href={href} tabIndex={-1} onClick={(event) => event.stopPropagation()}>
          <UserText mono>{row.name}</UserText>
        </Link>
      </span>
      <span role="gridcell" className={css.id}>
        <Id value={row.context_id} tabIndex={-1} />
      </span>
      <span role="gridcell" className={css.freshness}>
        <Freshness status={row.freshness_status} />
      </span>
      <span role="gridcell" className={css.tokens}>
        {count(row.tokens)}
        {row.max_tokens !== null && <Dim> / {count(row.max_tokens)}</Dim>}
      </span>
      <span role="gridcell" className={css.dropped}>
        {row.items_dropped === 0 ? <Dim>0</Dim> : count(row.items_dropped)}
      </span>
      <span role="gridcell" className={css.cost}>
        <Known>{row.cost_nano_usd === null ? null : money(row.cost_nano_usd)}</Known>
      </span>
      <span role="gridcell" className={css.model}>
        <Known>{row.model}</Known>
      </span>
      <span role="gridcell" className={css.caller}>
        <Known>{row.caller}</Known>
      </span>
      <span role="gridcell" className={css.record}>
        {row.is_signed && <Mark label="signed" icon={<IconSignature size={15} aria-hidden />} />}
        {row.is_redacted && <Mark label="redacted" icon={<IconEraser size={15} aria-hidden />} />}
      </span>
    </div>
  );
});

function Known({ children }: { children: string | null }) {
  return children === null ? <Dim>—</Dim> : <UserText>{children}</UserText>;
}

function Mark({ label, icon }: { label: string; icon: React.ReactNode }) {
  return (
    <span title={label} className={css.mark}>
      {icon}
      <span className="visually-hidden">{label}</span>
    </span>
  );
}

function Head({
  name,
  className = "",
  isHidden = false,
}: {
  name: string;
  className?: string | undefined;
  isHidden?: boolean;
}) {
  return (
    <span role="columnheader" className={className}>
      {isHidden ? <span className="visually-hidden">{name}</span> : name}
    </span>
  );
}

function rowId(place: string, index: number): string {
  return `${place}-row-${index}`;
}
