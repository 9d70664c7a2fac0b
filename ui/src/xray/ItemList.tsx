import { useVirtualizer } from "@tanstack/react-virtual";
import { memo, useCallback, useEffect, useRef, useState } from "react";

import { Card, useCopied, Button } from "~/design";
import { count, plural } from "~/design/format";
import { PartText, RoleHead } from "~/messages";

import { absenceText } from "./absence";
import { SpannedText } from "./SpannedText";
import { noteOf, type ItemView, type TraceView } from "./model";
import { moving, useSelection } from "./selection";
import css from "./ItemList.module.css";

/** Characters of one item that are shown at once. */
const LONGEST = 4_000;
/** A text with more items or characters scrolls by itself; others are seen whole on the page. */
const MOST = { items: 40, characters: 16_000 } as const;

/** The text as the model got it, item by item, and after it what was dropped. */
export function ItemList({ view, open }: { view: TraceView; open: () => void }) {
  const selection = useSelection();
  const scroller = useRef<HTMLDivElement>(null);
  const { items, kept, trace } = view;
  const [whole, setWhole] = useState<ReadonlySet<number>>(new Set());
  // eslint-disable-next-line react-hooks/incompatible-library -- nothing here is memoised by the compiler
  const rows = useVirtualizer({
    count: items.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => 52,
    overscan: 12,
    getItemKey: useCallback((index: number) => items[index]?.place ?? index, [items]),
  });
  const { selected } = selection;
  const shown = useRef(selected);
  const scrolls = isLong(items);
  const isRefused = trace.freshness_status === "refused";
  useEffect(() => {
    if (items.length === 0) return;
    if (scrolls) rows.scrollToIndex(selected, { align: "auto" });
    else if (shown.current !== selected) {
      document.getElementById(`item-${selected}`)?.scrollIntoView({ block: "nearest" });
    }
    shown.current = selected;
  }, [rows, selected, items.length, scrolls]);
  const isCut = (index: number) => !whole.has(index) && lengthOf(items[index]) > LONGEST;
  const half = items[selection.active]?.placed?.half ?? null;
  return (
    <Card
      title={isRefused ? "What was assembled, and refused" : "What the model was given"}
      aside={<Aside trace={trace} />}
      flush
    >
      {isRefused && (
        <p className={css.refused}>
          The caller got an error and no text: the context was not as fresh as it requires.
        </p>
      )}
      {items.length === 0 ? (
        <p className={css.none}>This record has no items: its text was assembled elsewhere.</p>
      ) : (
        <div
          ref={scroller}
          className={scrolls ? `${css.items} ${css.scroll}` : css.items}
          role="listbox"
          aria-label="Items in the order of the text"
          aria-activedescendant={`item-${selection.active}`}
          tabIndex={0}
          onKeyDown={moving(selection, items.length, open)}
          onPointerLeave={() => selection.hover(null)}
        >
          <div className={css.rows} style={{ height: rows.getTotalSize() }}>
            {rows.getVirtualItems().map(({ index, start, key }) => {
              const item = items[index];
              return (
                item && (
                  <div
                    key={key}
                    ref={rows.measureElement}
                    data-index={index}
                    className={css.slot}
                    style={{ transform: `translateY(${start}px)` }}
                    onPointerMove={() => {
                      if (selection.active !== index) selection.hover(index);
                    }}
                    onClick={() => selection.select(index)}
                  >
                    <Heading view={view} index={index} />
                    <Row
                      view={view}
                      item={item}
                      index={index}
                      isActive={index === selection.active}
                      isSelected={index === selected}
                      isLinked={half !== null && item.place === half}
                      isFirstDropped={index === kept}
                      isCut={isCut(index)}
                    />
                  </div>
                )
              );
            })}
          </div>
        </div>
      )}
      {/* An option of a list box may not contain a button, so it follows the list. */}
      {isCut(selected) && (
        <p className={css.foot}>
          The first {count(LONGEST)} of {count(lengthOf(items[selected]))} characters are shown.{" "}
          <button
            type="button"
            className={css.more}
            onClick={() => {
              setWhole(new Set([...whole, selected]));
              scroller.current?.focus();
            }}
          >
            Show all
          </button>
        </p>
      )}
    </Card>
  );
}

function isLong(items: readonly ItemView[]): boolean {
  const characters = items.reduce((sum, item) => sum + Math.min(lengthOf(item), LONGEST), 0);
  return items.length > MOST.items || characters > MOST.characters;
}

const lengthOf = (item: ItemView | undefined): number => item?.text?.length ?? 0;

function Aside({ trace: { content, request } }: { trace: TraceView["trace"] }) {
  const [copied, copy] = useCopied();
  return (
    <>
      <span className={css.hint}>
        <kbd>↑</kbd> <kbd>↓</kbd> to move, <kbd>Enter</kbd> to open
      </span>
      {content !== null && (
        <Button
          look="quiet"
          onClick={() => copy(request ? JSON.stringify(request.messages, null, 2) : content)}
        >
          {copied ? "Copied" : request ? "Copy messages" : "Copy text"}
        </Button>
      )}
    </>
  );
}

/** The head of a message, above its first item. Options tell their role to screen readers. */
function Heading({ view: { items, kept }, index }: { view: TraceView; index: number }) {
  const item = items[index];
  const placed = item?.placed;
  if (!placed) return null;
  const before = index === kept ? undefined : items[index - 1];
  const { turn, number } = placed.message;
  if (before?.placed?.message.number === number) return null;
  const end = items.findIndex(
    (each, at) => at > index && (at === kept || each.placed?.message.number !== number),
  );
  const own = items.slice(index, end < 0 ? undefined : end);
  const tokens = own.reduce((sum, each) => sum + each.tokens, 0);
  return (
    <div aria-hidden className={item.isDropped ? css.leftOut : undefined}>
      <RoleHead lane={placed.lane}>
        {turn !== null && <span>turn {count(turn)}</span>}
        {item.isDropped && <span>dropped</span>}
        <span className={css.size}>{plural(tokens, "token")}</span>
      </RoleHead>
    </div>
  );
}

type RowProps = {
  view: TraceView;
  item: ItemView;
  index: number;
  isActive: boolean;
  isSelected: boolean;
  /** The other half of the active tool call. */
  isLinked: boolean;
  isFirstDropped: boolean;
  /** Only the beginning of a long text is shown. */
  isCut: boolean;
};

const Row = memo(function Row(props: RowProps) {
  const { view, item, index, isSelected, isCut } = props;
  const { isDropped, placed } = item;
  return (
    <div
      id={`item-${index}`}
      role="option"
      aria-selected={isSelected}
      className={classesOf(props).filter(Boolean).join(" ")}
    >
      <span
        className={css.gutter}
        style={isDropped ? undefined : { background: item.color }}
        aria-hidden
      />
      <span className={css.meta}>
        {placed !== null && <span className="visually-hidden">{placed.lane}: </span>}
        <bdi className={css.label} title={item.label}>
          {item.label}
        </bdi>
        <span className={css.note}>{noteOf(item)}</span>
      </span>
      <span className={css.text} dir="auto">
        {item.absence !== null ? (
          <em className={css.absent}>{absenceText(item.absence)}</em>
        ) : placed?.part ? (
          <PartText part={placed.part} limit={isCut ? LONGEST : null} />
        ) : (
          <Text view={view} item={item} isCut={isCut} />
        )}
        <Rest item={item} />
      </span>
      {placed?.message.cache && <span className={css.cacheMark}>cached up to here</span>}
    </div>
  );
});

function classesOf({ item, index, isActive, isLinked, isFirstDropped }: RowProps) {
  const { isDropped, placed } = item;
  return [
    css.row,
    isActive && css.active,
    isLinked && css.linked,
    isDropped && css.dropped,
    // Messages have a head there.
    isFirstDropped && index > 0 && placed === null && css.border,
    placed !== null && placed.together.length > 0 && css.grouped,
    placed?.message.cache && css.cached,
  ];
}

/** What a shortened item left out. */
function Rest({ item: { item } }: { item: ItemView }) {
  if (item.decision !== "truncated" || item.content === null) return null;
  return <span className={css.cut}> {restOf(item.content, item.emitted ?? "")}</span>;
}

function Text({ view, item, isCut }: { view: TraceView; item: ItemView; isCut: boolean }) {
  const text = item.text ?? "";
  return (
    <>
      <SpannedText
        trace={view.trace}
        text={isCut ? text.slice(0, LONGEST) : text}
        spans={item.item.spans}
      />
      {isCut && <span className={css.rest}> … {count(text.length - LONGEST)} more characters</span>}
    </>
  );
}

/** The beginning of what a shortened item left out. */
function restOf(content: string, emitted: string): string {
  const kept = emitted.replace(/ …$/, "");
  const rest = content.startsWith(kept) ? content.slice(kept.length).trim() : content;
  return rest.length > 160 ? `${rest.slice(0, 160)} …` : rest;
}
