import type { ReactNode } from "react";

import { Unit, UserText } from "~/design";

import css from "./FamilyTable.module.css";
import type { FamilyGrid } from "./model";

/** What stands below the row of an aggregate, such as one of its keys. */
export type SubRow = { name: string; cells: readonly string[] };

type Props = {
  grid: FamilyGrid;
  /** What the table shows, read aloud by screen readers. */
  label: string;
  /** The content of the cell of a member. */
  cell: (member: string) => ReactNode;
  /** What a member is counted in; all of a row are counted in the same. */
  unit?: (member: string) => string | undefined;
  selected?: string | null | undefined;
  below?: (aggregate: string) => readonly SubRow[];
};

/** The members of a family: one row for each aggregate, one column for each window. */
export function FamilyTable({ grid, label, cell, unit, selected, below }: Props) {
  const { windows, aggregates } = grid.family;
  return (
    <div className={css.scroll} role="region" aria-label={label} tabIndex={0}>
      <table className={css.table} aria-label={label}>
        <thead>
          <tr>
            <th scope="col">
              <span className="visually-hidden">Aggregate</span>
            </th>
            {windows.map(({ window }) => (
              <th key={window} scope="col">
                {window}
              </th>
            ))}
          </tr>
        </thead>
        {aggregates.map((aggregate) => (
          <tbody key={aggregate}>
            <tr>
              <th scope="row">
                {aggregate}
                <Unit>{unit?.(grid.memberAt(aggregate, windows[0]?.window ?? "") ?? "")}</Unit>
              </th>
              {windows.map(({ window }) => {
                const member = grid.memberAt(aggregate, window);
                return (
                  <td key={window} aria-current={member !== null && member === selected}>
                    {member !== null && cell(member)}
                  </td>
                );
              })}
            </tr>
            {below?.(aggregate).map(({ name, cells }) => (
              <tr key={name} className={css.below}>
                <th scope="row">
                  <UserText mono>{name}</UserText>
                </th>
                {cells.map((text, index) => (
                  <td key={windows[index]?.window}>{text}</td>
                ))}
              </tr>
            ))}
          </tbody>
        ))}
      </table>
    </div>
  );
}
