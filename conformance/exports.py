"""Conformance tests of the exports of the ``OfflineStore`` port."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from conformance.suite import (
    START,
    Opened,
    Suite,
    after,
    change,
    click,
    dead_letter,
    outcome,
)
from headwater.core.clock import to_micros
from headwater.core.partitioning import BUCKETS, bucket_of


class ExportsConformance(Suite):
    """Copies of history and of the event log as Parquet files."""

    async def test_an_export_has_all_rows_with_a_number_above_the_given_one(
        self, store: Opened, other: Opened, tmp_path: Path
    ) -> None:
        assert await store.offline.export_history(tmp_path / "none.parquet", after=0) == 0
        assert not (tmp_path / "none.parquet").exists()
        last, seen = 0, []
        for number in range(4):
            changes = [change(number, entity_id=f"u{each}") for each in range(5)]
            await store.online.put(changes)
            await store.offline.append([change(number, feature="f", as_of=after(number))])
            file = tmp_path / f"{number}.parquet"
            previous, last = last, await other.offline.export_history(file, after=last)
            rows = read(file, "seq, entity_id, bucket, value_int FROM")
            assert max(seq for seq, *_ in rows) == last
            assert min(seq for seq, *_ in rows) > previous
            assert all(bucket == bucket_of(each) for _, each, bucket, _ in rows)
            seen += [(entity_id, value) for _, entity_id, _, value in rows]
            await store.offline.maintain()
        assert await store.offline.export_history(tmp_path / "no.parquet", after=last) == last
        expected = [(f"u{each}", number) for number in range(4) for each in range(5)]
        assert sorted(seen) == sorted([*expected, *(("u1", number) for number in range(4))])

    async def test_exported_rows_are_sorted_and_have_their_typed_value(
        self, store: Opened, tmp_path: Path
    ) -> None:
        await store.online.put(
            [
                change(number, entity_id=f"u{number % 7}", feature=f"f{number % 3}")
                for number in range(30)
            ]
        )
        file = tmp_path / "history.parquet"
        await store.offline.export_history(file, after=0)
        rows = read(
            file, "feature, bucket, entity_id, epoch_us(as_of), seq, entity, kind, cause FROM"
        )
        assert rows == sorted(rows)
        assert {row[3:4] + row[5:] for row in rows} == {(to_micros(START), "User", "int", "test")}

    async def test_events_up_to_a_position_are_exported_by_bucket(
        self, store: Opened, other: Opened, tmp_path: Path
    ) -> None:
        leases = await store.hold()
        events = [click(f"u{number % 9}", number) for number in range(40)]
        await store.publish(events)
        for batch in await store.read(leases):
            await store.bus.commit(outcome(batch, dead=[dead_letter(batch)]))
        # Neither is before the positions: an event that came later, and a redriven one.
        upto = await store.groups.positions("workers")
        letters = await store.letters()
        await store.dead_letters.redrive([letters[0].id])
        await store.publish([click("u1", 99)])
        view = msgspec.structs.replace(click(), event_type="view")
        await store.publish([view])
        files = await other.offline.export_events(tmp_path, ["click"], upto, files=3)
        assert [file.name for file in files] == [
            "events-0000-0340.parquet",
            "events-0341-0681.parquet",
            f"events-0682-{BUCKETS - 1}.parquet",
        ]
        found = [row for file in files for row in _events(file)]
        assert [row[:2] for row in found] == sorted(row[:2] for row in found)
        numbers = {
            entity_id: [row[-1] for row in found if row[4] == entity_id]
            for entity_id in {event.entity_id for event in events}
        }
        assert numbers == {
            entity_id: [e.payload["number"] for e in events if e.entity_id == entity_id]
            for entity_id in numbers
        }
        assert {row[0] == bucket_of(row[4]) for row in found} == {True}
        assert {row[3] for row in found} == {"click"}
        assert {row[5] for row in found} == {to_micros(START)}

    async def test_only_events_since_a_moment_are_exported(
        self, store: Opened, tmp_path: Path
    ) -> None:
        times: list[datetime] = [after(number) for number in range(4)]
        events = [
            msgspec.structs.replace(click(number=number), timestamp=time)
            for number, time in enumerate(times)
        ]
        await store.publish(events)
        leases = await store.hold()
        batch = await store.only_batch(leases)
        await store.bus.commit(outcome(batch))
        upto = await store.groups.positions("workers")
        await store.offline.maintain()
        [file] = await store.offline.export_events(
            tmp_path, ["click"], upto, since=times[2], files=1
        )
        assert [row[-1] for row in _events(file)] == [2, 3]


def _events(file: Path) -> list[tuple[Any, ...]]:
    return read(
        file,
        'bucket, n, "position", event_type, entity_id, "timestamp", received_at,'
        " CAST(payload ->> '$.number' AS INT) FROM",
    )


def read(file: Path, select: str) -> list[tuple[Any, ...]]:
    """Return columns of a file."""
    with duckdb.connect() as duck:
        duck.execute("SET TimeZone = 'UTC'")
        return duck.execute(f"SELECT {select} read_parquet('{file}')").fetchall()
