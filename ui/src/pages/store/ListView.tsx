import { IconChevronDown, IconChevronRight } from "@tabler/icons-react";
import { useState, type KeyboardEvent } from "react";

import {
  DataTable,
  Dim,
  FeatureName,
  IconButton,
  Mono,
  Unit,
  UserText,
  type Column,
} from "~/design";
import { plural } from "~/design/format";

import { KindIcon, kindWord, modeWord } from "./kinds";
import { rowsOf, type Item } from "./model";
import css from "./StorePage.module.css";

const OWNED: readonly Column<Item>[] = [
  {
    head: "Owner",
    cell: ({ owner }) => (owner === "" ? <Dim>—</Dim> : <UserText>{owner}</UserText>),
    secondary: true,
    width: "6rem",
  },
  {
    head: "Tags",
    cell: ({ tags }) => (tags.length === 0 ? <Dim>—</Dim> : <UserText>{tags.join(", ")}</UserText>),
    secondary: true,
    width: "7rem",
  },
];

const COLUMNS: readonly Column<Item>[] = [
  {
    head: "Kind",
    cell: (item) => {
      if (item.members > 0) return plural(item.members, "window");
      return item.kind === "feature" ? modeWord(item.mode) : kindWord(item.kind);
    },
    width: "7rem",
    whole: true,
  },
  {
    head: "Entity",
    cell: (item) => (item.kind === "feature" ? item.entity : <Dim>—</Dim>),
    secondary: true,
    width: "8rem",
  },
  {
    head: "Type",
    cell: ({ type, unit }) => (
      <>
        {type === null ? <Dim>—</Dim> : <Mono>{type}</Mono>}
        <Unit>{unit}</Unit>
      </>
    ),
    secondary: true,
    width: "8rem",
  },
  {
    head: "Description",
    cell: ({ description }) => (
      <div className={css.about}>
        <bdi>{description.split("\n", 1)[0]}</bdi>
      </div>
    ),
    secondary: true,
  },
  {
    head: "Needs",
    cell: ({ needs }) => needs || <Dim>—</Dim>,
    number: true,
    secondary: true,
    width: "4rem",
  },
  {
    head: "Needed by",
    cell: ({ neededBy }) => neededBy || <Dim>—</Dim>,
    number: true,
    secondary: true,
    width: "6rem",
  },
];

type Props = {
  items: readonly Item[];
  selected: string | null;
  onOpen: (id: string) => void;
  /** Beside the opened card there is room for two columns. */
  isNarrow: boolean;
};

/** The same as the graph, as a table; the windows of a family are shown when it is opened. */
export function ListView({ items, selected, onOpen, isNarrow }: Props) {
  const [opened, setOpened] = useState<ReadonlySet<string>>(new Set());
  const family = items.find(({ id }) => id === selected)?.family ?? null;
  const shown = family === null ? opened : new Set([...opened, family]);
  const toggle = (id: string) => {
    const others = new Set(shown);
    if (!others.delete(id)) others.add(id);
    setOpened(others);
  };
  const isOwned = items.some(({ owner, tags }) => owner !== "" || tags.length > 0);
  const columns = isOwned
    ? COLUMNS.flatMap((each) => {
        if (each.head === "Description") return [...OWNED, each];
        return { ...each, extra: each.number ?? false };
      })
    : COLUMNS;
  const name: Column<Item> = {
    head: "Name",
    cell: (item) => <Named item={item} isOpened={shown.has(item.id)} onToggle={toggle} />,
    width: isOwned ? "13rem" : "16rem",
  };
  return (
    <div onKeyDown={moveInRows}>
      <DataTable
        label="Declarations"
        columns={[name, ...(isNarrow ? COLUMNS.slice(0, 1) : columns)]}
        rows={rowsOf(items, shown)}
        rowKey={({ id }) => id}
        onOpen={({ id }) => onOpen(id)}
        isSelected={({ id }) => id === selected}
      />
    </div>
  );
}

type NamedProps = { item: Item; isOpened: boolean; onToggle: (id: string) => void };

function Named({ item, isOpened, onToggle }: NamedProps) {
  const Chevron = isOpened ? IconChevronDown : IconChevronRight;
  return (
    <span className={item.family === null ? css.named : `${css.named} ${css.member}`}>
      <KindIcon kind={item.kind} mode={item.members > 0 ? "window" : item.mode} />
      <FeatureName name={item.name} />
      {item.members > 0 && (
        <IconButton
          label={`${isOpened ? "Hide" : "Show"} the windows of ${item.name}`}
          aria-expanded={isOpened}
          onClick={(event) => {
            event.stopPropagation();
            onToggle(item.id);
          }}
        >
          <Chevron size={15} />
        </IconButton>
      )}
    </span>
  );
}

/** Move the focus by arrow keys, or j and k. */
function moveInRows(event: KeyboardEvent<HTMLElement>) {
  const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
  if (step === undefined || !(event.target instanceof HTMLTableRowElement)) return;
  event.preventDefault();
  const next = step > 0 ? event.target.nextElementSibling : event.target.previousElementSibling;
  if (next instanceof HTMLElement) next.focus();
}
