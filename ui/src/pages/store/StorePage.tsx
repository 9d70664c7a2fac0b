import { useMediaQuery } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { IconAffiliate, IconList } from "@tabler/icons-react";
import { useCallback, useDeferredValue, useEffect, useMemo } from "react";
import { useSearchParams } from "wouter";

import type { Schema } from "~/api/client";
import { declarations } from "~/api/queries";
import { isTyping } from "~/app/keys";
import { Choice, CopyAs, Empty, Field, Loaded, PageHead, Skeleton, Views } from "~/design";
import { plural } from "~/design/format";
import { loadable } from "~/design/loadable";

import { DeclarationPanel } from "./DeclarationPanel";
import { KIND_WORDS } from "./kinds";
import { ListView } from "./ListView";
import {
  familiesOf,
  folded,
  itemsOf,
  matches,
  NO_OWNER,
  ownersAndTags,
  touchedBy,
  withNeighbours,
  type Item,
} from "./model";
import css from "./StorePage.module.css";

const { component: GraphView } = loadable(
  () => import("./GraphView"),
  <Skeleton lines={1} height={480} />,
);
const PHONE = "(max-width: 760px)";
const EXAMPLE = `from headwater import FeatureStore, ServiceEvent, entity, feature

store = FeatureStore()

@entity(store)
class User:
    user_id: str

@feature(entity=User, trigger="visit", default=0)
async def visits(user_id: str, event: ServiceEvent) -> int:
    return await store.get_feature("visits", user_id) + 1`;

/** Everything that the features file declares, as a graph or a list, and the card of one of them. */
export default function StorePage() {
  const query = useQuery(declarations);
  return (
    <Loaded
      query={query}
      loading={
        <>
          <PageHead tab="Store" title="Store" />
          <Skeleton lines={1} height={480} />
        </>
      }
    >
      {(listing) => <Store listing={listing} />}
    </Loaded>
  );
}

type View = "graph" | "list";
const VIEWS = [
  ["graph", "Graph", IconAffiliate],
  ["list", "List", IconList],
] as const;
const FILTERS = ["q", "kind", "entity", "owner", "tag"] as const;
type Changes = Partial<Record<(typeof FILTERS)[number] | "view" | "card", string | null>>;

/** What the address says: filters, view and the opened card. */
function useAddress() {
  const [search, setSearch] = useSearchParams();
  const isPhone = useMediaQuery(PHONE, false, { getInitialValueInEffect: false });
  const set = useCallback(
    (changes: Changes, { replace = false } = {}) =>
      setSearch(
        (before) => {
          const after = new URLSearchParams(before);
          for (const [name, value] of Object.entries(changes)) {
            if (value) after.set(name, value);
            else after.delete(name);
          }
          return after;
        },
        { replace },
      ),
    [setSearch],
  );
  const view: View =
    (search.get("view") ?? (isPhone ? "list" : "graph")) === "list" ? "list" : "graph";
  return {
    view,
    set,
    selected: search.get("card"),
    kind: search.get("kind") ?? "",
    entity: search.get("entity") ?? "",
    owner: search.get("owner") ?? "",
    tag: search.get("tag") ?? "",
    text: search.get("q") ?? "",
  };
}

type Address = ReturnType<typeof useAddress>;

function Store({ listing }: { listing: Schema<"StoreListing"> }) {
  const items = useMemo(() => itemsOf(listing), [listing]);
  const address = useAddress();
  const { selected, set } = address;
  const open = useCallback((id: string) => set({ card: id }), [set]);
  const close = useCallback(() => set({ card: null }), [set]);
  useEscape(selected === null ? null : close);
  return (
    <>
      <Head listing={listing} items={items} />
      {items.length === 0 ? (
        <Empty title="Nothing is declared" command={EXAMPLE}>
          Or your key may see none of it. Declare an entity and a feature in a features file, then
          start <code>headwater serve features.py</code> again.
        </Empty>
      ) : (
        <>
          <Filters listing={listing} items={items} address={address} />
          <div className={selected === null ? css.main : `${css.main} ${css.open}`}>
            <Declarations listing={listing} items={items} address={address} onOpen={open} />
            {selected !== null && (
              <DeclarationPanel key={selected} id={selected} onOpen={open} onClose={close} />
            )}
          </div>
        </>
      )}
    </>
  );
}

type FiltersProps = {
  listing: Schema<"StoreListing">;
  items: readonly Item[];
  address: Address;
};

function Filters({ listing, items, address }: FiltersProps) {
  const { kind, entity, owner, tag, text, view, selected, set } = address;
  const { owners, tags, someUnowned } = useMemo(() => ownersAndTags(items), [items]);
  const named = (names: readonly string[]) => names.map((name) => [name, name] as const);
  return (
    <div
      className={selected === null ? css.filters : `${css.filters} ${css.covered}`}
      role="search"
    >
      <Field
        label="Filter by name or words"
        quiet
        placeholder="Filter by name or words"
        type="search"
        value={text}
        onChange={(event) => set({ q: event.target.value }, { replace: true })}
      />
      <Choice
        label="Kind"
        quiet
        value={kind}
        onChange={(value) => set({ kind: value })}
        options={[["", "All kinds"], ...KIND_WORDS.map(([each, , many]) => [each, many] as const)]}
      />
      <Choice
        label="Entity"
        quiet
        value={entity}
        onChange={(value) => set({ entity: value })}
        options={[["", "All entities"], ...named(listing.entities.map(({ name }) => name))]}
      />
      {(owners.length > 0 || owner !== "") && (
        <Choice
          label="Owner"
          quiet
          value={owner}
          onChange={(value) => set({ owner: value })}
          options={[
            ["", "All owners"],
            ...named(owners),
            ...(someUnowned ? [[NO_OWNER, "No owner"] as const] : []),
          ]}
        />
      )}
      {(tags.length > 0 || tag !== "") && (
        <Choice
          label="Tag"
          quiet
          value={tag}
          onChange={(value) => set({ tag: value })}
          options={[["", "All tags"], ...named(tags)]}
        />
      )}
      <div className={css.views}>
        <Views views={VIEWS} view={view} onChange={(value) => set({ view: value })} />
      </div>
    </div>
  );
}

type DeclarationsProps = {
  listing: Schema<"StoreListing">;
  items: readonly Item[];
  address: Address;
  onOpen: (id: string) => void;
};

function Declarations({ listing, items, address, onOpen }: DeclarationsProps) {
  const { kind, entity, owner, tag, view, selected, set } = address;
  // Drawing hundreds of nodes again must not delay the typing of a filter.
  const text = useDeferredValue(address.text);
  const found = useMemo(() => {
    const touched = entity === "" ? new Set<string>() : touchedBy(items, listing.graph, entity);
    const filter = { kind, entity, owner, tag, text };
    return items.filter((item) => matches(item, filter, touched));
  }, [items, listing.graph, kind, entity, owner, tag, text]);
  // The picture has one node for a family, however many windows it has.
  const matching = useMemo(() => new Set(found.map(({ id, family }) => family ?? id)), [found]);
  const graph = useMemo(() => folded(listing.graph), [listing.graph]);
  const drawn = useMemo(() => {
    const shown = withNeighbours(matching, graph);
    return items.filter(
      (item) => item.kind !== "entity" && item.family === null && shown.has(item.id),
    );
  }, [items, matching, graph]);
  if (found.length === 0) {
    return (
      <Empty title="Nothing matches">
        No declaration matches these filters.{" "}
        <button
          type="button"
          className={css.clear}
          onClick={() => set(Object.fromEntries(FILTERS.map((name) => [name, null])))}
        >
          Show all
        </button>
      </Empty>
    );
  }
  if (view === "list") {
    return (
      <div className={css.list}>
        <ListView items={found} selected={selected} onOpen={onOpen} isNarrow={selected !== null} />
      </div>
    );
  }
  return (
    <div className={css.graph}>
      <GraphView
        items={drawn}
        matching={matching}
        graph={graph}
        selected={items.find(({ id }) => id === selected)?.family ?? selected}
        onOpen={onOpen}
      />
    </div>
  );
}

function Head({ listing, items }: { listing: Schema<"StoreListing">; items: readonly Item[] }) {
  const { features, entities, contexts, retrievers } = listing;
  const families = new Set(familiesOf(listing.graph).values()).size;
  const parts = [
    `${plural(features.length - families, "feature")} of ${plural(entities.length, "entity", "entities")}`,
    ...(retrievers.length > 0 ? [plural(retrievers.length, "retriever")] : []),
    ...(contexts.length > 0 ? [plural(contexts.length, "context")] : []),
  ];
  return (
    <PageHead
      tab="Store"
      title="Store"
      subtitle={
        items.length === 0
          ? undefined
          : `${parts.join(", ")}. Dashed lines were found in the code of functions.`
      }
      actions={
        <CopyAs call={{ path: "/api/store", cli: ["graph", "--json"], python: "declarations()" }} />
      }
    />
  );
}

/** Call a function when Escape is pressed outside of fields, dialogs and menus. */
function useEscape(call: (() => void) | null) {
  useEffect(() => {
    if (call === null) return;
    const onKey = (event: KeyboardEvent) => {
      if (event.key === "Escape" && !event.defaultPrevented && !isTyping(event)) call();
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, [call]);
}
