import type { KeyboardEvent } from "react";

import { DataTable, Dim, Mono, UserText, type Column } from "~/design";

import { KindIcon, kindWord, modeWord } from "./kinds";
import type { Item } from "./model";
import css from "./StorePage.module.css";

const COLUMNS: readonly Column<Item>[] = [
  {
    head: "Name",
    cell: (item) => (
      <span className={css.named}>
        <KindIcon kind={item.kind} mode={item.mode} />
        <Mono>
          <UserText>{item.name}</UserText>
        </Mono>
      </span>
    ),
    width: "16rem",
  },
  {
    head: "Kind",
    cell: (item) => (item.kind === "feature" ? modeWord(item.mode) : kindWord(item.kind)),
    width: "7rem",
  },
  {
    head: "Entity",
    cell: (item) => (item.kind === "feature" ? item.entity : <Dim>—</Dim>),
    secondary: true,
    width: "8rem",
  },
  {
    head: "Type",
    cell: (item) => (item.type === null ? <Dim>—</Dim> : <Mono>{item.type}</Mono>),
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
    width: "6rem",
  },
];
const NAME_AND_KIND = COLUMNS.slice(0, 2);

type Props = {
  items: readonly Item[];
  selected: string | null;
  onOpen: (id: string) => void;
  /** Beside the opened card there is room for two columns. */
  isNarrow: boolean;
};

/** The same as the graph, as a table. */
export function ListView({ items, selected, onOpen, isNarrow }: Props) {
  return (
    <div onKeyDown={moveInRows}>
      <DataTable
        label="Declarations"
        columns={isNarrow ? NAME_AND_KIND : COLUMNS}
        rows={items}
        rowKey={({ id }) => id}
        onOpen={({ id }) => onOpen(id)}
        isSelected={({ id }) => id === selected}
      />
    </div>
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
