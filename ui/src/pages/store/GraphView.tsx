import {
  Handle,
  MarkerType,
  MiniMap,
  Panel,
  Position,
  ReactFlow,
  ReactFlowProvider,
  useReactFlow,
  type Edge as FlowEdge,
  type Node as FlowNode,
  type NodeProps,
} from "@xyflow/react";
import { IconArrowsMaximize, IconMinus, IconPlus } from "@tabler/icons-react";
import { useEffect, useEffectEvent, useMemo, useRef, type KeyboardEvent } from "react";

import "@xyflow/react/dist/base.css";

import { IconButton } from "~/design";
import { shortened } from "~/design/format";

import css from "./GraphView.module.css";
import { KindIcon, wordsOf } from "./kinds";
import { neighbour, NODE, placed, type Arrow } from "./layout";
import { relatedTo, type Graph, type Item } from "./model";

type Props = {
  items: readonly Item[];
  /** Items that match the filter; the others are next to one. */
  matching: ReadonlySet<string>;
  graph: Graph;
  selected: string | null;
  onOpen: (id: string) => void;
};

type Data = {
  item: Item;
  isDim: boolean;
  isSelected: boolean;
  /** The one node that Tab reaches; arrow keys lead to the others. */
  isStop: boolean;
};

const MANY = 24;
/** Names at this zoom are as large as the smallest text of the page. */
const READABLE = 0.92;
const TYPES = { declaration: DeclarationNode };
const MARGIN = { top: 32, left: 24, right: 24, bottom: 64 } as const;
const FIT = {
  padding: { top: "32px", left: "24px", right: "24px", bottom: "64px" },
  minZoom: 0.1,
  maxZoom: 1,
} as const;

/** Everything declared, from event types at the left to contexts at the right. */
export default function GraphView(props: Props) {
  return (
    <ReactFlowProvider>
      <Drawing {...props} />
    </ReactFlowProvider>
  );
}

function Drawing({ items, matching, graph, selected, onOpen }: Props) {
  const flow = useReactFlow();
  const frame = useRef<HTMLDivElement>(null);
  const places = useMemo(
    () =>
      placed(
        items.map(({ id }) => id),
        graph.edges,
      ),
    [items, graph],
  );
  const related = useMemo(
    () => (selected !== null && places.has(selected) ? relatedTo(graph, selected) : null),
    [graph, selected, places],
  );
  const stop = selected !== null && places.has(selected) ? selected : items[0]?.id;
  const nodes = useMemo(
    () =>
      items.map((item): FlowNode<Data> => ({
        id: item.id,
        type: "declaration",
        position: places.get(item.id) ?? { x: 0, y: 0 },
        ...NODE,
        data: {
          item,
          isDim: related === null ? !matching.has(item.id) : !related.has(item.id),
          isSelected: item.id === selected,
          isStop: item.id === stop,
        },
      })),
    [items, places, related, matching, selected, stop],
  );
  const edges = useMemo(() => edgesOf(graph, places, related), [graph, places, related]);

  const show = (id: string) => {
    const place = places.get(id);
    const area = frame.current?.getBoundingClientRect();
    if (place === undefined || area === undefined) return;
    const at = flow.flowToScreenPosition(place);
    const end = flow.flowToScreenPosition({ x: place.x + NODE.width, y: place.y + NODE.height });
    const isInside =
      at.x >= area.left && at.y >= area.top && end.x <= area.right && end.y <= area.bottom;
    if (!isInside) {
      const zoom = Math.max(flow.getZoom(), READABLE);
      void flow.setCenter(place.x + NODE.width / 2, place.y + NODE.height / 2, { zoom });
    }
  };

  const showSelected = useEffectEvent(() => {
    if (selected !== null) show(selected);
  });
  /** Show the whole picture where its names stay readable, else its beginning: the upper left. */
  const begin = () => {
    const area = frame.current?.getBoundingClientRect();
    if (area === undefined) return;
    const { x, y, width, height } = flow.getNodesBounds([...places.keys()]);
    const room = [
      area.width - MARGIN.left - MARGIN.right,
      area.height - MARGIN.top - MARGIN.bottom,
    ] as const;
    const zoom = Math.max(READABLE, Math.min(1, room[0] / width, room[1] / height));
    const centred = [(room[0] - width * zoom) / 2, (room[1] - height * zoom) / 2] as const;
    void flow.setViewport({
      x: MARGIN.left + Math.max(0, centred[0]) - x * zoom,
      y: MARGIN.top + Math.max(0, centred[1]) - y * zoom,
      zoom,
    });
  };
  // Another filter or size is another picture: begin anew, or with what surrounds the selection.
  const focus = useEffectEvent(() => {
    if (related === null) begin();
    else {
      // Names stay readable: of a wide picture only the surroundings of the selection are shown.
      const nodes = [...related].map((id) => ({ id }));
      void flow.fitView({ ...FIT, minZoom: READABLE, nodes }).then(showSelected);
    }
  });
  useEffect(() => {
    const area = frame.current;
    if (area === null) return;
    // It reports the first size too.
    const observer = new ResizeObserver(() => requestAnimationFrame(focus));
    observer.observe(area);
    return () => observer.disconnect();
  }, [flow, places]);

  useEffect(() => {
    // After the card has taken its place.
    const timer = requestAnimationFrame(showSelected);
    return () => cancelAnimationFrame(timer);
  }, [selected]);

  const onKeyDown = (event: KeyboardEvent) => {
    if (!event.key.startsWith("Arrow") || !(event.target instanceof HTMLElement)) return;
    const from = event.target.dataset.node;
    const to = from === undefined ? null : neighbour(places, graph.edges, from, event.key as Arrow);
    event.preventDefault();
    if (to === null) return;
    show(to);
    frame.current?.querySelector<HTMLElement>(`[data-node="${CSS.escape(to)}"]`)?.focus({
      preventScroll: true,
    });
  };

  return (
    <div ref={frame} className={css.frame} onKeyDown={onKeyDown}>
      <ReactFlow
        nodes={nodes}
        edges={edges}
        nodeTypes={TYPES}
        nodesDraggable={false}
        nodesConnectable={false}
        nodesFocusable={false}
        edgesFocusable={false}
        elementsSelectable={false}
        onNodeClick={(_, node) => onOpen(node.id)}
        disableKeyboardA11y
        panOnScroll
        minZoom={0.1}
        maxZoom={1.5}
        proOptions={{ hideAttribution: true }}
      >
        <Panel position="bottom-left" className={css.controls}>
          <IconButton label="Zoom in" onClick={() => void flow.zoomIn()}>
            <IconPlus size={16} />
          </IconButton>
          <IconButton label="Zoom out" onClick={() => void flow.zoomOut()}>
            <IconMinus size={16} />
          </IconButton>
          <IconButton label="Show everything" onClick={() => void flow.fitView(FIT)}>
            <IconArrowsMaximize size={16} />
          </IconButton>
          <span className={css.hint}>Arrow keys move, Enter opens</span>
        </Panel>
        {items.length > MANY && (
          <MiniMap
            className={css.map}
            pannable
            ariaLabel="Map of the graph"
            nodeColor="var(--line-strong)"
            maskColor="var(--map-mask)"
            bgColor="var(--surface)"
          />
        )}
      </ReactFlow>
    </div>
  );
}

function edgesOf(
  graph: Graph,
  places: ReadonlyMap<string, unknown>,
  related: ReadonlySet<string> | null,
): FlowEdge[] {
  return (
    graph.edges
      .filter(({ source, target }) => places.has(source) && places.has(target))
      .map((edge) => ({
        ...edge,
        isLit: related !== null && related.has(edge.source) && related.has(edge.target),
      }))
      // Later ones are drawn above earlier ones.
      .sort((one, two) => Number(one.isLit) - Number(two.isLit))
      .map(({ source, target, found_in, isLit }) => {
        const look = [
          css.edge,
          found_in === "code" ? css.found : "",
          isLit ? css.lit : "",
          related !== null && !isLit ? css.faint : "",
        ];
        return {
          id: `${source}>${target}`,
          source,
          target,
          className: look.filter(Boolean).join(" "),
          markerEnd: {
            type: MarkerType.ArrowClosed,
            width: 14,
            height: 14,
            color: isLit ? "var(--accent)" : related ? "var(--line)" : "var(--ink-disabled)",
          },
        };
      })
  );
}

/** Return what the pointer shows: the name, what it is for, its unit, its owner and its tags. */
function titleOf({ name, description, unit, owner, tags }: Item): string {
  const facts = [unit, owner, tags.join(", ")].filter(Boolean).join(" · ");
  return [name, description.split("\n", 1)[0], facts].filter(Boolean).join("\n");
}

function DeclarationNode({ id, data }: NodeProps<FlowNode<Data>>) {
  const { item, isDim, isSelected, isStop } = data;
  const look = [css.node, isDim ? css.dim : "", isSelected ? css.selected : ""];
  return (
    <>
      <Handle type="target" position={Position.Left} isConnectable={false} className={css.handle} />
      <button
        type="button"
        className={`nopan ${look.filter(Boolean).join(" ")}`}
        data-node={id}
        tabIndex={isStop ? 0 : -1}
        aria-pressed={isSelected}
        title={titleOf(item)}
      >
        <span className={css.icon}>
          <KindIcon kind={item.kind} mode={item.members > 0 ? "window" : item.mode} size={16} />
        </span>
        <span className={css.words}>
          <bdi className={css.name}>{shortened(item.name, 11, 9)}</bdi>
          <span className={css.detail}>{wordsOf(item)}</span>
        </span>
      </button>
      <Handle
        type="source"
        position={Position.Right}
        isConnectable={false}
        className={css.handle}
      />
    </>
  );
}
