import { DataTable, Dim, UserText, type Column } from "~/design";
import { cellText, keyed, OTHER } from "~/windows";

import css from "./Lookup.module.css";

type Row = readonly [key: string, value: unknown];

/** The value of a keyed window: one row for each key, the greatest value first. */
export function KeyTable({ value }: { value: unknown }) {
  const rows: Row[] = keyed(value);
  if (rows.length === 0) return <p className={css.none}>No contribution in this window</p>;
  const greatest = Math.max(...rows.map(([, each]) => (typeof each === "number" ? each : 0)));
  const columns: Column<Row>[] = [
    {
      head: "Key",
      cell: ([key]) => (
        <>
          <UserText mono>{key}</UserText>
          {key === OTHER && <Dim> keys that are not kept apart</Dim>}
        </>
      ),
    },
    { head: "Value", number: true, cell: ([, each]) => cellText(each, 60) },
    {
      head: <span className="visually-hidden">Share of the greatest</span>,
      secondary: true,
      width: "30%",
      cell: ([, each]) =>
        typeof each === "number" && greatest > 0 ? (
          <span
            className={css.keyBar}
            style={{ width: `${Math.max(0, (100 * each) / greatest)}%` }}
            aria-hidden
          />
        ) : null,
    },
  ];
  return (
    <div className={css.keys}>
      <DataTable label="Values by key" columns={columns} rows={rows} rowKey={([key]) => key} />
    </div>
  );
}
