import {
  DataTable,
  Dim,
  FeatureName,
  StateWord,
  Time,
  Unit,
  UserText,
  useNow,
  type Column,
} from "~/design";

import { duration } from "~/design/format";

import css from "./Lookup.module.css";
import type { EntityValue } from "./queries";
import { brief } from "./steps";
import { judged } from "./values";

type Props = {
  values: readonly EntityValue[];
  /** What the values are counted in, by feature. */
  units: ReadonlyMap<string, string>;
  selected: string | null;
  onSelect: (feature: string) => void;
  /** Whether there is room for SLA and source. */
  wide: boolean;
};

const DETAILS: readonly Column<EntityValue>[] = [
  {
    head: "SLA",
    number: true,
    secondary: true,
    cell: ({ sla_ms }) => (sla_ms === null ? <Dim>—</Dim> : duration(sla_ms)),
  },
  { head: "Source", secondary: true, cell: ({ source }) => <Dim>{source ?? "—"}</Dim> },
];

/** One row for each feature of an entity. */
export function ValuesTable({ values, units, selected, onSelect, wide }: Props) {
  const now = useNow();
  const columns: Column<EntityValue>[] = [
    {
      head: "Feature",
      width: wide ? undefined : "27%",
      cell: ({ feature }) => <FeatureName name={feature} />,
    },
    {
      head: "Value",
      width: wide ? "45%" : "33%",
      cell: (value) => <ShortValue value={value} unit={units.get(value.feature)} wide={wide} />,
    },
    { head: "As of", number: true, cell: ({ as_of }) => <Time at={as_of} />, secondary: true },
    ...(wide ? DETAILS : []),
    {
      head: "State",
      cell: (value) => {
        const { state, word } = judged(value, now);
        return <StateWord state={state}>{word}</StateWord>;
      },
    },
  ];
  return (
    <DataTable
      label="Values of the entity"
      columns={columns}
      rows={values}
      rowKey={({ feature }) => feature}
      onOpen={({ feature }) => onSelect(feature)}
      isSelected={({ feature }) => feature === selected}
    />
  );
}

type ShortProps = { value: EntityValue; unit: string | undefined; wide: boolean };

/** The beginning of a value: as much as a glance takes in, or two lines beside its card. */
function ShortValue({ value, unit, wide }: ShortProps) {
  if (value.problem !== null) return <Dim>{value.problem.title}</Dim>;
  if (value.source === "missing") return <Dim>—</Dim>;
  return (
    <span className={wide ? `${css.short} ${css.long}` : css.short}>
      <UserText mono>{brief(value.value, wide ? 600 : 120)}</UserText>
      <Unit>{unit}</Unit>
    </span>
  );
}
