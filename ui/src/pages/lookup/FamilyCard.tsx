import { Link, useSearchParams } from "wouter";

import { Card, Dim, FeatureName, StateBadge, useNow } from "~/design";
import { plural } from "~/design/format";
import { cellText, FamilyTable, keyed, OTHER, type FamilyGrid, type SubRow } from "~/windows";

import css from "./Lookup.module.css";
import type { EntityValue } from "./queries";
import { worst } from "./values";

type Props = {
  grid: FamilyGrid;
  /** What its members are counted in, by name. */
  units: ReadonlyMap<string, string>;
  /** The values of its members. */
  values: readonly EntityValue[];
  selected: string | null;
};

const MOST_KEYS = 6;
/** The most windows for which a card has room beside another. */
const BESIDE = 4;

/** All windows of one family: a small table of aggregates and windows. */
export function FamilyCard({ grid, units, values, selected }: Props) {
  const now = useNow();
  const byName = new Map(values.map((value) => [value.feature, value]));
  const { family, name } = grid;
  const { state, word } = worst(values, now);
  return (
    <Card
      title={
        <>
          <FeatureName name={name} /> <Dim>over time</Dim>
        </>
      }
      aside={<StateBadge state={state}>{word}</StateBadge>}
      className={family.windows.length > BESIDE ? css.whole : undefined}
      flush
    >
      <FamilyTable
        grid={grid}
        label={`Windows of ${name}`}
        selected={selected}
        unit={(member) => units.get(member)}
        cell={(member) => (
          <MemberLink name={member} value={byName.get(member)} isKeyed={family.by !== null} />
        )}
        below={(aggregate) => (family.by === null ? [] : keyRows(grid, aggregate, byName))}
      />
    </Card>
  );
}

type LinkProps = { name: string; value: EntityValue | undefined; isKeyed: boolean };

function MemberLink({ name, value, isKeyed }: LinkProps) {
  const [search] = useSearchParams();
  const to = new URLSearchParams(search);
  to.set("feature", name);
  return (
    <Link href={`/lookup?${to.toString()}`} title={name}>
      {textOf(value, isKeyed)}
      <span className="visually-hidden"> {name}</span>
    </Link>
  );
}

function textOf(value: EntityValue | undefined, isKeyed: boolean): string {
  if (value?.problem) return "failed";
  if (value === undefined || value.source === "missing") return "—";
  return isKeyed ? plural(keyed(value.value).length, "key") : cellText(value.value);
}

/** The keys of an aggregate, those with the greatest values of the longest window first. */
function keyRows(
  { family: { windows }, memberAt }: FamilyGrid,
  aggregate: string,
  values: ReadonlyMap<string, EntityValue>,
): SubRow[] {
  const found = windows.map(({ window, span_us }) => {
    const value = values.get(memberAt(aggregate, window) ?? "")?.value;
    return { span_us, entries: new Map(keyed(value)) };
  });
  const longest = [...found].sort((one, two) => two.span_us - one.span_us);
  const keys = [...new Set(longest.flatMap(({ entries }) => [...entries.keys()]))];
  const rows = keys.map((key) => ({
    name: key,
    cells: found.map(({ entries }) => (entries.has(key) ? cellText(entries.get(key)) : "")),
  }));
  const [shown, rest] = [rows.slice(0, MOST_KEYS), rows.slice(MOST_KEYS)];
  const other = rest.filter(({ name }) => name === OTHER);
  const hidden = rest.length - other.length;
  return hidden > 1
    ? [
        ...shown,
        ...other,
        { name: `and ${plural(hidden, "key")} more`, cells: found.map(() => "") },
      ]
    : rows;
}
