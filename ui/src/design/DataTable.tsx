import type { KeyboardEvent, ReactNode } from "react";

import css from "./DataTable.module.css";

export type Column<Row> = {
  head: ReactNode;
  cell: (row: Row) => ReactNode;
  /** Numbers are aligned at the right. */
  number?: boolean;
  /** Hidden on a phone. */
  secondary?: boolean;
  /** Hidden unless the window is wide. */
  extra?: boolean;
  /** Not broken into lines. */
  whole?: boolean;
  width?: string;
};

type Props<Row> = {
  /** What the table lists, read aloud by screen readers. */
  label: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  rowKey: (row: Row) => string | number;
  /** Open a row; it can then be focused and opened by Enter. */
  onOpen?: (row: Row) => void;
  isSelected?: (row: Row) => boolean;
};

const MOVES: Readonly<Record<string, "nextElementSibling" | "previousElementSibling">> = {
  ArrowDown: "nextElementSibling",
  j: "nextElementSibling",
  ArrowUp: "previousElementSibling",
  k: "previousElementSibling",
};

/** Focus the next or the previous row. */
function move(event: KeyboardEvent<HTMLTableRowElement>) {
  const to = MOVES[event.key];
  if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  const row = event.currentTarget[to];
  if (row instanceof HTMLElement) row.focus();
}

/** A table of up to some hundred rows. Longer lists are virtual. */
export function DataTable<Row>({ label, columns, rows, rowKey, onOpen, isSelected }: Props<Row>) {
  const style = ({ number, secondary, extra, whole }: Column<Row>) =>
    [number && css.number, secondary && css.secondary, extra && css.extra, whole && css.whole]
      .filter(Boolean)
      .join(" ");
  return (
    // A region that scrolls must be reachable by keyboard; rows that open are.
    <div
      className={css.scroll}
      {...(onOpen === undefined && { tabIndex: 0, role: "region", "aria-label": label })}
    >
      <table className={css.table} aria-label={label}>
        <thead>
          <tr>
            {columns.map((column, index) => (
              <th key={index} scope="col" className={style(column)} style={{ width: column.width }}>
                {column.head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr
              key={rowKey(row)}
              {...(onOpen && {
                tabIndex: 0,
                onClick: () => onOpen(row),
                onKeyDown: (event) => {
                  if (event.target !== event.currentTarget) return;
                  if (event.key === "Enter") onOpen(row);
                  else move(event);
                },
              })}
              className={onOpen && css.opens}
              aria-selected={isSelected?.(row)}
            >
              {columns.map((column, index) => (
                <td key={index} className={style(column)}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
