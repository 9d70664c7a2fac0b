import { useElementSize } from "@mantine/hooks";
import { useMemo, useState } from "react";
import { Link } from "wouter";

import { useMayOpen } from "~/app/allowed";
import { Button, Card } from "~/design";
import { plural } from "~/design/format";

import { COLUMNS, lineageOf, type LineageNode } from "./lineage";
import type { Cause, TraceView } from "./model";
import { useSelection } from "./selection";
import css from "./LineageGraph.module.css";

/** Items whose lineage is drawn together; of more, only that of the selected one. */
const MOST_ITEMS = 40;
const ROW = 46;
const NODE = 38;
const NARROWEST = 720;
const GAP = 0.22;

type Props = { view: TraceView; causes: ReadonlyMap<string, Cause> | undefined };

/** Where the text came from, left to right: events, features, templates and searches, items, text. */
export function LineageGraph({ view, causes }: Props) {
  const { active, select } = useSelection();
  const { ref, width: measured } = useElementSize();
  const hasMany = view.items.length > MOST_ITEMS;
  const [isAll, setAll] = useState(() => !hasMany && matchMedia("(min-width: 761px)").matches);
  const shown = useMemo(
    () => (isAll ? view.items.map((_, index) => index).slice(0, MOST_ITEMS) : [active]),
    [isAll, view, active],
  );
  const { nodes, edges } = useMemo(
    () => lineageOf(view, shown, causes ?? new Map<string, Cause>()),
    [view, shown, causes],
  );
  const width = Math.max(NARROWEST, measured);
  const columns = COLUMNS.map((_, column) => nodes.filter((node) => node.column === column));
  const height = Math.max(...columns.map(({ length }) => length), 1) * ROW;
  const places = placesOf(columns, width, height);
  const lit = connected(`item ${active}`, edges);
  const step = width / COLUMNS.length;
  return (
    <Card
      title="Lineage"
      aside={
        view.items.length > 1 && (
          <Button look="quiet" aria-pressed={!isAll} onClick={() => setAll(!isAll)}>
            {isAll
              ? "Only the selected item"
              : hasMany
                ? `The first ${MOST_ITEMS} of ${plural(view.items.length, "item")}`
                : "All items"}
          </Button>
        )
      }
      flush
    >
      <div className={css.scroll} tabIndex={0} role="region" aria-label="Lineage graph">
        <div ref={ref} className={css.measure} />
        <div className={css.heads} style={{ width }}>
          {COLUMNS.map((head) => (
            <span key={head}>{head}</span>
          ))}
        </div>
        <div className={css.graph} style={{ width, height }}>
          <svg width={width} height={height} aria-hidden>
            {edges.map(({ from, to, isLoose }) => {
              const [start, end] = [places.get(from), places.get(to)];
              if (!start || !end) return null;
              const isLit = lit.has(from) && lit.has(to);
              return (
                <path
                  key={`${from}\n${to}`}
                  d={curve(start.x + step * (1 - GAP), start.y, end.x, end.y)}
                  className={isLit ? css.lit : css.edge}
                  strokeDasharray={isLoose ? "3 4" : undefined}
                />
              );
            })}
          </svg>
          {nodes.map((node) => {
            const place = places.get(node.id);
            return (
              place && (
                <Node
                  key={node.id}
                  node={node}
                  isLit={lit.has(node.id)}
                  style={{
                    left: place.x,
                    top: place.y - NODE / 2,
                    width: step * (1 - GAP),
                    height: NODE,
                  }}
                  onSelect={select}
                />
              )
            );
          })}
        </div>
      </div>
    </Card>
  );
}

type Box = { left: number; top: number; width: number; height: number };
type NodeProps = {
  node: LineageNode;
  isLit: boolean;
  style: Box;
  onSelect: (index: number) => void;
};

function Node({ node, isLit, style, onSelect }: NodeProps) {
  const { label, detail, color, href, index } = node;
  const mayOpen = useMayOpen();
  const className = [css.node, isLit && css.shown, node.isDropped && css.dropped]
    .filter(Boolean)
    .join(" ");
  const content = (
    <>
      {color && !node.isDropped && <i className={css.color} style={{ background: color }} />}
      <bdi className={css.label}>{label}</bdi>
      <bdi className={node.isStale ? css.stale : css.detail}>
        {node.isStale ? `${detail}, not fresh` : detail}
      </bdi>
    </>
  );
  if (href && mayOpen(href)) {
    return (
      <Link href={href} className={className} style={style} title={`${label} · ${detail}`}>
        {content}
      </Link>
    );
  }
  if (index !== undefined) {
    return (
      <button type="button" className={className} style={style} onClick={() => onSelect(index)}>
        {content}
      </button>
    );
  }
  return (
    <div className={className} style={style}>
      {content}
    </div>
  );
}

type Point = { x: number; y: number };

/** Nodes of a column stand in their order, in the middle of the height. */
function placesOf(
  columns: readonly (readonly LineageNode[])[],
  width: number,
  height: number,
): Map<string, Point> {
  const places = new Map<string, Point>();
  columns.forEach((nodes, column) => {
    const top = (height - nodes.length * ROW) / 2;
    nodes.forEach((node, row) =>
      places.set(node.id, {
        x: (width / columns.length) * column + (width / columns.length) * (GAP / 2),
        y: top + (row + 0.5) * ROW,
      }),
    );
  });
  return places;
}

function curve(x1: number, y1: number, x2: number, y2: number): string {
  const middle = (x1 + x2) / 2;
  return `M${x1},${y1} C${middle},${y1} ${middle},${y2} ${x2},${y2}`;
}

/** All nodes on the way to and from a node. */
function connected(id: string, edges: readonly { from: string; to: string }[]): Set<string> {
  const found = new Set([id]);
  for (const [near, far] of [
    ["to", "from"],
    ["from", "to"],
  ] as const) {
    const waiting = [id];
    for (const each of waiting) {
      for (const edge of edges) {
        if (edge[near] === each && !found.has(edge[far])) {
          found.add(edge[far]);
          waiting.push(edge[far]);
        }
      }
    }
  }
  return found;
}
