import { Modal } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import {
  IconArrowRight,
  IconBolt,
  IconBraces,
  IconDatabase,
  IconFile,
  IconFileSearch,
  IconFileText,
  IconId,
  IconSearch,
  IconTextCaption,
  IconUser,
  IconVersions,
  type Icon,
} from "@tabler/icons-react";
import { useEffect, useEffectEvent, useId, useRef, useState, type KeyboardEvent } from "react";
import { useLocation } from "wouter";

import { api, body } from "~/api/client";
import { explained } from "~/design";

import { useAllowedPages } from "./allowed";
import { grouped, recent, remember, targetOf, type Target } from "./found";
import { isTyping } from "./keys";
import css from "./Palette.module.css";
import { paletteOpen } from "./sheet";

const ICONS: Record<Target["kind"], Icon> = {
  page: IconArrowRight,
  record: IconFileText,
  entity_id: IconUser,
  entity: IconId,
  feature: IconBraces,
  context: IconTextCaption,
  retriever: IconFileSearch,
  index: IconVersions,
  document: IconFile,
  event: IconBolt,
  source: IconDatabase,
};
const PAUSE_MS = 120;

/** The palette: go to a page, or to a thing by its name or id. */
export function Palette() {
  const isOpen = paletteOpen.use();
  useEffect(() => {
    const onKey = (event: globalThis.KeyboardEvent) => {
      const isShortcut = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k";
      if (!isShortcut && (event.key !== "/" || isTyping(event))) return;
      event.preventDefault();
      paletteOpen.set(true);
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, []);
  return (
    <Modal.Root
      opened={isOpen}
      onClose={() => paletteOpen.set(false)}
      size="38rem"
      yOffset="10vh"
      padding={0}
      lockScroll={false}
      transitionProps={{ duration: 0 }}
    >
      <Modal.Overlay />
      <Modal.Content aria-label="Search everything">
        <Search onClose={() => paletteOpen.set(false)} />
      </Modal.Content>
    </Modal.Root>
  );
}

function Search({ onClose }: { onClose: () => void }) {
  const [text, setText] = useState("");
  const { groups, note, isSettled } = useFound(text.trim());
  const targets = groups.flatMap(([, each]) => each);
  const [chosen, setChosen] = useState(0);
  const [isAwaited, setAwaited] = useState(false);
  const [, navigate] = useLocation();
  const id = useId();
  const list = useRef<HTMLDivElement>(null);
  const current = targets[Math.min(chosen, targets.length - 1)];

  const go = (target: Target) => {
    if (target.kind !== "page") remember(target);
    onClose();
    navigate(target.href);
  };
  // What is listed while a text is searched belongs to the text before: Enter waits for its own.
  const isReady = isSettled || current?.kind === "page";
  const awaited = isAwaited && isReady ? current : undefined;
  const openAwaited = useEffectEvent(go);
  useEffect(() => {
    if (awaited) openAwaited(awaited);
  }, [awaited]);
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined && targets.length > 0) {
      const next = (Math.min(chosen, targets.length - 1) + step + targets.length) % targets.length;
      setChosen(next);
      list.current?.querySelectorAll("[role=option]")[next]?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter" && isReady && current) go(current);
    else if (event.key === "Enter") setAwaited(true);
    else return;
    event.preventDefault();
  };

  return (
    <>
      <div className={css.search}>
        <IconSearch size={16} aria-hidden />
        <input
          data-autofocus
          role="combobox"
          aria-label="Search"
          aria-expanded
          aria-controls={`${id}-list`}
          aria-activedescendant={current && `${id}-${current.href}`}
          autoComplete="off"
          spellCheck={false}
          dir="auto"
          placeholder="Feature, context, entity id, record id or hash"
          value={text}
          onChange={(event) => {
            setText(event.target.value);
            setChosen(0);
            setAwaited(false);
          }}
          onKeyDown={onKeyDown}
        />
        <kbd>Esc</kbd>
      </div>
      <div ref={list} id={`${id}-list`} role="listbox" aria-label="Found" className={css.list}>
        {groups.map(([title, each]) => (
          <div key={title} role="group" aria-label={title}>
            <p className={css.group} aria-hidden>
              {title}
            </p>
            {each.map((target) => (
              <Option
                key={target.href}
                id={`${id}-${target.href}`}
                target={target}
                isCurrent={target === current}
                onPick={() => go(target)}
              />
            ))}
          </div>
        ))}
      </div>
      <p className={css.note} role="status">
        {note}
      </p>
    </>
  );
}

type OptionProps = { id: string; target: Target; isCurrent: boolean; onPick: () => void };

function Option({ id, target, isCurrent, onPick }: OptionProps) {
  const Icon = ICONS[target.kind];
  return (
    <div id={id} role="option" aria-selected={isCurrent} className={css.option} onClick={onPick}>
      <Icon size={16} stroke={1.7} aria-hidden />
      <bdi className={target.kind === "page" ? css.page : css.name}>{target.name}</bdi>
      <bdi className={css.detail}>{target.detail}</bdi>
    </div>
  );
}

type FoundTargets = {
  groups: readonly (readonly [string, readonly Target[]])[];
  note: string;
  /** Whether these are the targets of the text, and not of the one before it. */
  isSettled: boolean;
};

/** Return what to offer for a text: recent things and pages without one, else what matches. */
function useFound(text: string): FoundTargets {
  const pages = useAllowedPages().map(({ path, label, key }): Target => ({
    href: path,
    kind: "page",
    name: label,
    detail: `g ${key}`,
  }));
  const [settled] = useDebouncedValue(text, PAUSE_MS);
  const query = useQuery({
    queryKey: ["search", settled],
    queryFn: async ({ signal }) =>
      body(await api.GET("/v1/search", { params: { query: { q: settled } }, signal })),
    enabled: settled !== "",
    placeholderData: keepPreviousData,
    staleTime: 10_000,
  });
  if (text === "") return suggested(pages);
  const matching = pages.filter(({ name }) => name.toLowerCase().includes(text.toLowerCase()));
  const groups = grouped([...(query.data?.found ?? []).map(targetOf), ...matching]);
  if (query.isError) return { groups, note: explained(query.error).title, isSettled: true };
  if (query.data === undefined || query.isPlaceholderData || settled !== text) {
    return { groups, note: "Searching…", isSettled: false };
  }
  const note = noteOf(text, groups.length, query.data.unavailable.length);
  return { groups, note, isSettled: true };
}

function suggested(pages: readonly Target[]): FoundTargets {
  const last = recent();
  return {
    groups: [...(last.length > 0 ? [["Recent", last] as const] : []), ["Pages", pages] as const],
    note: "Type a name, an id, or the beginning of a record's id or hash.",
    isSettled: true,
  };
}

function noteOf(text: string, groups: number, unavailable: number): string {
  if (unavailable > 0) return "A store is down: stored data was not searched.";
  return groups === 0 ? `Nothing is called “${text}”.` : "↑ ↓ to move, Enter to open";
}
