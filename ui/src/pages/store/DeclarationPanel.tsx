import { useQuery } from "@tanstack/react-query";
import { IconX } from "@tabler/icons-react";
import type { ReactNode } from "react";

import { api, body, type Schema } from "~/api/client";
import { useCan } from "~/api/me";
import { declarations } from "~/api/queries";
import {
  Card,
  Code,
  CopyAs,
  Dim,
  Empty,
  IconButton,
  Loaded,
  Mono,
  Skeleton,
  Tag,
  UserText,
} from "~/design";
import { plural } from "~/design/format";
import { FamilyTable, gridsOf } from "~/windows";

import { ActivityRows } from "./ActivityRows";
import { KindIcon, kindWord, modeWord } from "./kinds";
import { familiesOf, folded, kindOf, nameOf, type Graph, type Kind } from "./model";
import { Links } from "./Links";
import { Options } from "./Options";
import css from "./StorePage.module.css";

type CardData = Schema<"DeclarationCard">;

type Props = { id: string; onOpen: (id: string) => void; onClose: () => void };

/** The card of one declaration: what it is, how it does, what it needs, and its code. */
export function DeclarationPanel({ id, onOpen, onClose }: Props) {
  const [kind, name] = [kindOf(id), nameOf(id)];
  const mayRead = useCan("GET /v1/declarations/{kind}/{name}");
  const query = useQuery({
    queryKey: ["declaration", kind, name],
    queryFn: async ({ signal }) =>
      body(
        await api.GET("/v1/declarations/{kind}/{name}", {
          params: { path: { kind, name } },
          signal,
        }),
      ),
    enabled: mayRead,
    refetchInterval: 15_000,
  });
  return (
    <section className={css.panel} aria-label={`${kindWord(kind)} ${name}`}>
      <header className={css.panelHead}>
        <div className={css.panelTitle}>
          <h2>
            <UserText mono>{name}</UserText>
          </h2>
          <Tags kind={kind} card={query.data} />
        </div>
        <CopyAs call={callOf(kind, name)} />
        <IconButton label="Close" onClick={onClose}>
          <IconX size={16} />
        </IconButton>
      </header>
      {mayRead ? (
        <Loaded query={query} loading={<Skeleton lines={10} />}>
          {(card) => <Sections card={card} onOpen={onOpen} />}
        </Loaded>
      ) : (
        <Empty title="Details need the scope read">
          Your key sees the names that it uses. An operator gives a key more scopes with{" "}
          <code>headwater keys</code>.
        </Empty>
      )}
    </section>
  );
}

function Tags({ kind, card }: { kind: Kind; card: CardData | undefined }) {
  const windows = card?.feature?.windows?.members.length ?? 0;
  const mode = windows > 0 ? "window" : (card?.feature?.mode ?? null);
  return (
    <p className={css.tags}>
      <Tag>
        <KindIcon kind={kind} mode={mode} size={13} />
        {tagOf(kind, mode, windows)}
      </Tag>
      {card?.feature && (
        <Tag>
          <UserText>{card.feature.entity}</UserText>
        </Tag>
      )}
    </p>
  );
}

function tagOf(kind: Kind, mode: string | null, windows: number): string {
  if (windows > 0) return `family of ${plural(windows, "window")}`;
  return mode === null ? kindWord(kind) : `${modeWord(mode)} feature`;
}

function aboutOf({ feature, retriever, context, event, entity }: CardData) {
  return feature ?? retriever ?? context ?? event ?? entity;
}

function Sections({ card, onOpen }: { card: CardData; onOpen: (id: string) => void }) {
  const id = `${card.kind}:${card.name}`;
  const about = aboutOf(card);
  return (
    <div className={css.sections}>
      {about?.description && (
        <p className={css.description}>
          <UserText>{about.description}</UserText>
        </p>
      )}
      <Links card={card} />
      <ActivityRows card={card} />
      <Options card={card} />
      <FamilyMembers card={card} onOpen={onOpen} />
      <Neighbours
        of={id}
        title="Needs"
        found={card.providers}
        total={card.provider_count}
        onOpen={onOpen}
        empty={card.kind === "event" || card.kind === "source" ? null : "Nothing declared"}
      />
      <Neighbours
        of={id}
        title={card.kind === "entity" ? "Features" : "Needed by"}
        found={card.consumers}
        total={card.consumer_count}
        onOpen={onOpen}
        empty="Nothing declared"
      />
      {card.code && (
        <Card
          title="Code"
          aside={
            card.declared_at && (
              <span className={css.where} title={card.declared_at}>
                <bdi>{placeOf(card.declared_at)}</bdi>
              </span>
            )
          }
        >
          <Code text={card.code.text} />
          {card.code.is_cut && <Dim>The function is longer; its beginning is shown.</Dim>}
        </Card>
      )}
    </div>
  );
}

/** The windows of a family: a table that opens the card of each. */
function FamilyMembers({ card, onOpen }: { card: CardData; onOpen: (id: string) => void }) {
  const { data } = useQuery(declarations);
  const grid = gridsOf(data?.features ?? []).find(({ name }) => name === card.feature?.name);
  if (grid === undefined) return null;
  const types = new Map(data?.features.map(({ name, type }) => [name, type]));
  return (
    <Card title={`Windows ${grid.family.members.length}`} flush>
      <FamilyTable
        grid={grid}
        label={`Windows of ${card.name}`}
        cell={(member) => (
          <button
            type="button"
            className={css.clear}
            title={member}
            aria-label={member}
            onClick={() => onOpen(`feature:${member}`)}
          >
            <Mono>{types.get(member)}</Mono>
          </button>
        )}
      />
    </Card>
  );
}

type NeighboursProps = {
  /** The id of what these are next to. */
  of: string;
  title: string;
  found: readonly Neighbour[];
  /** All, also through others. */
  total: number;
  onOpen: (id: string) => void;
  empty: string | null;
};

function Neighbours({ of, title, found: all, total, onOpen, empty }: NeighboursProps): ReactNode {
  const { data } = useQuery(declarations);
  const found = folding(of, all, data?.graph);
  if (found.length === 0 && empty === null) return null;
  const kept = found.filter((each) => all.includes(each)).length;
  const more = total - all.length - (found.length - kept);
  const windows = kindOf(of) === "entity" ? all.length - kept : 0;
  return (
    <Card
      title={`${title} ${found.length === 0 ? "" : found.length}`}
      aside={
        more > 0
          ? `and ${plural(more, "more", "more")} through these`
          : windows > 0 && `with ${plural(windows, "window")}`
      }
      flush
    >
      {found.length === 0 ? (
        <p className={css.nothing}>{empty}</p>
      ) : (
        <ul className={css.neighbours}>
          {found.map(({ node, found_in }) => (
            <li key={node.id}>
              <button type="button" onClick={() => onOpen(node.id)}>
                <KindIcon
                  kind={kindOf(node.id)}
                  mode={kindOf(node.id) === "feature" ? node.kind : null}
                />
                <Mono>
                  <UserText>{node.name}</UserText>
                </Mono>
                {found_in === "code" && <Dim>in code</Dim>}
              </button>
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}

type Neighbour = Schema<"Neighbour">;

/**
 * Return neighbours without the windows of families that are shown beside them; what needs a window
 * of a family needs the family.
 */
function folding(of: string, found: readonly Neighbour[], graph: Graph | undefined): Neighbour[] {
  if (graph === undefined) return [...found];
  const families = familiesOf(graph);
  const shown = new Set([of, ...found.map(({ node }) => node.id)]);
  const others = found.filter(({ node }) => !shown.has(families.get(node.id) ?? ""));
  if (!found.some(({ node }) => families.get(node.id) === of)) return others;
  const nodes = new Map(graph.nodes.map((node) => [node.id, node]));
  const through = folded(graph).edges.flatMap(({ source, target, found_in }) => {
    const node = nodes.get(target);
    return source === of && node !== undefined ? [{ node, found_in }] : [];
  });
  return [...others, ...through];
}

/** Return the end of a location: the file and the line. */
function placeOf(location: string): string {
  return location.split("/").slice(-2).join("/");
}

function callOf(kind: Kind, name: string) {
  return {
    path: `/v1/declarations/${kind}/${encodeURIComponent(name)}`,
    cli: kind === "feature" ? ["features", "list"] : null,
    python: null,
  };
}
