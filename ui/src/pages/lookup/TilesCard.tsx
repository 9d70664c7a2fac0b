import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import type { Schema } from "~/api/client";
import { Card, CopyAs, DataTable, Dim, Loaded, Skeleton, Time, type Column } from "~/design";
import { duration, plural } from "~/design/format";
import { coveredSince, hopMs, nextToLeave, type Member, type Tile } from "~/windows";

import css from "./Lookup.module.css";
import { familyWindows } from "./queries";
import { shownValue, TilesChart } from "./TilesChart";

type Props = { name: string; id: string; member: Member };

/** A window has up to 10,000 hops. */
const MOST_ROWS = 500;

/** What a window is made of: the tiles of its hop, and what leaves it next. */
export function TilesCard({ name, id, member }: Props) {
  const query = useQuery(familyWindows(name, id));
  return (
    <Card title="Tiles" aside={<Dim>one for each {duration(hopMs(member))}</Dim>}>
      <Loaded query={query} loading={<Skeleton lines={1} height={150} />}>
        {(read) => <Tiles read={read} name={name} id={id} member={member} />}
      </Loaded>
    </Card>
  );
}

type TilesProps = Props & { read: Schema<"EntityWindows"> };

function Tiles({ read, name, id, member }: TilesProps) {
  const [isOpened, setOpened] = useState(false);
  const level = read.levels.find(({ hop_us }) => hop_us === member.hop_us);
  const at = Date.parse(read.as_of);
  const since = coveredSince(member, at);
  // Other windows of this hop may be longer: what this one has left behind shows how it falls.
  const shown = level?.tiles.filter(({ end }) => Date.parse(end) > since - (at - since)) ?? [];
  if (shown.length === 0) {
    return (
      <p className={css.none}>
        No tiles: no event has contributed in the last {duration(at - since)}.
      </p>
    );
  }
  return (
    <div className={css.stack}>
      <TilesChart member={member} tiles={shown} at={at} />
      <Next member={member} tiles={shown} at={at} />
      <details className={css.tiles} onToggle={(event) => setOpened(event.currentTarget.open)}>
        <summary>{plural(shown.length, "tile")} as a table</summary>
        {isOpened && <TileTable member={member} tiles={shown} since={since} />}
      </details>
      <div className={css.actions}>
        <CopyAs
          call={{
            path: `/v1/features/${name}/windows?${new URLSearchParams({ entity_id: id }).toString()}`,
            python: `get_feature_windows(${JSON.stringify(name)}, ${JSON.stringify(id)})`,
          }}
        />
      </div>
    </div>
  );
}

function Next({ member, tiles, at }: { member: Member; tiles: readonly Tile[]; at: number }) {
  const next = nextToLeave(member, tiles, at);
  if (next === null) return <p className={css.none}>Nothing is covered: every tile has left.</p>;
  return (
    <p>
      Leaves next: the tile from <Time at={next.tile.start} show="exact" />, {member.aggregate}{" "}
      <strong className={css.figure}>{shownValue(next.tile.values[member.aggregate])}</strong>,{" "}
      <Time at={next.at} />.
    </p>
  );
}

type TableProps = { member: Member; tiles: readonly Tile[]; since: number };

function TileTable({ member, tiles, since }: TableProps) {
  const columns: Column<Tile>[] = [
    { head: "From", cell: ({ start }) => <Time at={start} show="exact" /> },
    { head: "To", cell: ({ end }) => <Time at={end} show="exact" />, secondary: true },
    {
      head: member.aggregate,
      number: true,
      cell: ({ values }) => shownValue(values[member.aggregate]),
    },
    {
      head: "Covered",
      cell: ({ start }) => (Date.parse(start) < since ? <Dim>no, it has left</Dim> : "yes"),
    },
  ];
  return (
    <div className={css.keys}>
      <DataTable
        label="Tiles, newest first"
        columns={columns}
        rows={tiles.slice(-MOST_ROWS).reverse()}
        rowKey={({ start }) => start}
      />
      {tiles.length > MOST_ROWS && (
        <p className={css.none}>and {plural(tiles.length - MOST_ROWS, "older tile")}</p>
      )}
    </div>
  );
}
