import type { ReactNode } from "react";

import css from "./layout.module.css";

/** Names and values in two columns. Rows without a value are left out. */
export function KeyValues({
  rows,
}: {
  rows: readonly (readonly [name: string, value: ReactNode])[];
}) {
  return (
    <dl className={css.pairs}>
      {rows.map(([name, value]) =>
        value === null || value === undefined ? null : (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ),
      )}
    </dl>
  );
}
