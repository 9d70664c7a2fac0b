import { useElementSize } from "@mantine/hooks";
import { memo, useMemo, type MouseEvent } from "react";

import { Card, StateWord } from "~/design";
import { count, plural } from "~/design/format";

import { barOf, budgetOf, segmentAt, type Bar, type Segment } from "./bar";
import type { ItemView, TraceView } from "./model";
import { moving, useSelection } from "./selection";
import css from "./TokenBar.module.css";

/** A segment narrower than this has no text, one narrower than the second only its number. */
const NUMBER_PX = 26;
const LABEL_PX = 64;
/** Segments narrower than this on average stand without gaps between them. */
const DENSE_PX = 5;

/** The items as wide as their tokens, the budget as a line, and behind it what was dropped. */
export function TokenBar({ view, open }: { view: TraceView; open: () => void }) {
  const selection = useSelection();
  const { ref, width } = useElementSize();
  const bar = useMemo(() => barOf(view), [view]);
  const { items, trace } = view;
  const at = (event: MouseEvent<HTMLElement>): number | null => {
    const box = event.currentTarget.getBoundingClientRect();
    const share = (event.clientX - box.left) / box.width;
    const index = segmentAt(bar, share);
    const found = bar.segments[index];
    return found && found.start <= share && share < found.end ? index : null;
  };
  const active = bar.segments[selection.active];
  const behind = bar.segments[view.kept];
  return (
    <Card>
      <div className={css.head}>
        <Used view={view} />
        <Missing view={view} />
      </div>
      <div
        ref={ref}
        className={width / items.length < DENSE_PX ? `${css.track} ${css.dense}` : css.track}
        role="listbox"
        aria-label="Items by their tokens"
        aria-orientation="horizontal"
        aria-activedescendant={active && `segment-${active.index}`}
        tabIndex={0}
        onKeyDown={moving(selection, items.length, open)}
        onPointerMove={(event) => selection.hover(at(event))}
        onPointerLeave={() => selection.hover(null)}
        onClick={(event) => {
          const index = at(event);
          if (index !== null) selection.select(index);
        }}
      >
        {behind && (
          <div
            className={css.hatched}
            style={{ left: percent(behind.start), width: percent(1 - behind.start) }}
          />
        )}
        {bar.segments.map((segment) => {
          const item = items[segment.index];
          return (
            item && (
              <Part
                key={segment.index}
                segment={segment}
                item={item}
                label={labelFor(item, (segment.end - segment.start) * width)}
                isSelected={segment.index === selection.selected}
              />
            )
          );
        })}
        {bar.envelope && (
          <div
            className={css.envelope}
            style={{
              left: percent(bar.envelope.start),
              width: percent(bar.envelope.end - bar.envelope.start),
            }}
            title={`${count(trace.count.envelope_tokens ?? 0)} around the items`}
          />
        )}
        {active && (
          <div
            className={css.active}
            style={{ left: percent(active.start), width: percent(active.end - active.start) }}
          />
        )}
        {bar.budget !== null && <div className={css.line} style={{ left: percent(bar.budget) }} />}
      </div>
      <Foot view={view} bar={bar} active={selection.active} />
      {view.isMessages && <Counted trace={trace} />}
    </Card>
  );
}

/** The words below the bar: the budget, and what would have kept the active item. */
function Foot({ view, bar, active }: { view: TraceView; bar: Bar; active: number }) {
  const { max_tokens: budget } = view.trace;
  const shown = view.items[active];
  return (
    <div className={css.foot} hidden={bar.budget === null}>
      {bar.budget !== null && budget !== null && (
        <span
          className={css.budget}
          style={{ left: percent(bar.budget) }}
          data-end={bar.budget > 0.5}
        >
          budget {count(budget)}
          {bar.isFreeCut && ", not to scale"}
        </span>
      )}
      {shown && shown.item.short_by > 0 && (
        <span className={css.short}>
          +{plural(shown.item.short_by, "token")} would have kept it
        </span>
      )}
    </div>
  );
}

const GRADES: Readonly<Record<CountGrade, string>> = {
  exact: "Counted exactly",
  provider: "Counted by the provider",
  estimate: "Estimated",
};
type CountGrade = TraceView["trace"]["count"]["grade"];

/** How the tokens of a request were counted, and what belongs to them besides the items. */
function Counted({ trace: { count: counted, max_output: reserve } }: Pick<TraceView, "trace">) {
  const { grade, source, envelope_tokens: envelope } = counted;
  return (
    <p className={css.counted}>
      <span>
        {GRADES[grade]} with <bdi>{source}</bdi>
      </span>
      {envelope !== null && envelope > 0 && (
        <span>
          <i className={css.swatch} aria-hidden /> {plural(envelope, "token")} around the items
        </span>
      )}
      {reserve !== null && <span>{plural(reserve, "token")} reserved for the answer</span>}
    </p>
  );
}

function Used({ view: { trace, kept, items } }: { view: TraceView }) {
  const shortened = trace.items.filter(({ decision }) => decision === "truncated").length;
  const dropped = items.length - kept;
  const usable =
    trace.max_tokens !== null && trace.margin_percent > 0
      ? budgetOf(trace.max_tokens, trace.margin_percent)
      : null;
  return (
    <p>
      <strong>{count(trace.tokens)}</strong>
      {trace.max_tokens === null
        ? ` ${trace.tokens === 1 ? "token" : "tokens"}, no budget`
        : ` of ${plural(trace.max_tokens, "token")}`}
      {usable !== null && ` (${count(usable)} usable, because the count is an estimate)`}
      {` · ${count(kept - shortened)} kept`}
      {shortened > 0 && `, ${count(shortened)} shortened`}
      {dropped > 0 && `, ${count(dropped)} dropped`}
    </p>
  );
}

function Missing({ view: { trace, kept, items } }: { view: TraceView }) {
  if (trace.overflow) {
    return <StateWord state="ageing">Required items alone exceed the budget</StateWord>;
  }
  if (trace.short_by === null || trace.short_by === 0) {
    return items.length === kept ? <p className={css.dim}>Nothing was dropped</p> : null;
  }
  return <p className={css.dim}>+{plural(trace.short_by, "token")} would have kept everything</p>;
}

type Label = "none" | "number" | "name";

/** Return as much of a label as a width has room for. */
function labelFor({ kind }: ItemView, width: number): Label {
  if (width < NUMBER_PX) return "none";
  return width < LABEL_PX || kind === "literal" ? "number" : "name";
}

type PartProps = { segment: Segment; item: ItemView; label: Label; isSelected: boolean };

/** One segment. Its width is a share, so that another width of the bar draws few segments again. */
const Part = memo(function Part({ segment, item, label, isSelected }: PartProps) {
  const { start, end, index } = segment;
  const tokens = count(item.tokens);
  return (
    <div
      id={`segment-${index}`}
      role="option"
      aria-selected={isSelected}
      aria-label={`${tokens} ${item.label}, ${item.item.decision}`}
      className={item.isDropped ? css.dropped : css.kept}
      style={{
        left: percent(start),
        width: percent(end - start),
        ...(item.isDropped ? {} : { background: item.color }),
      }}
    >
      {label !== "none" && (
        <span className={css.label}>
          {tokens}
          {label === "name" && <bdi> {item.label}</bdi>}
        </span>
      )}
    </div>
  );
});

const percent = (share: number): string => `${share * 100}%`;
