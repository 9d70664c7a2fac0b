"""Old rows are removed from Postgres, months that are over as a whole."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from headwater.backends.postgres import history_sql, partition_tables, retention
from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.environment import PostgresEnvironment, open_postgres
from headwater.backends.postgres.partition_tables import Month, month_of
from headwater.core.clock import SystemClock, from_micros, to_micros
from headwater.model.values import Cell
from headwater.ports import Change, Point, Pruned
from headwater.settings.schema import Settings
from tests.backends.postgres.outbox import MemoryOutbox
from tests.backends.postgres.story import rows

OLD_MONTHS = [Month(2026, number) for number in (1, 2, 3)]
START_OF_APRIL = datetime(2026, 4, 1, tzinfo=UTC)
MERGED = "_history_merged"


def value(number: int, day: int, *, entity_id: str = "u1", written: int | None = None) -> Change:
    """Return a value of a day of 2026, the first of which is 1."""
    cell = Cell(msgspec.Raw(b"%d" % number), _day(day), _day(written or day))
    return Change("clicks", "User", entity_id, "int", cell, f"e{number}")


def _day(number: int) -> int:
    return to_micros(datetime(2026, 1, 1, tzinfo=UTC)) + (number - 1) * 86_400_000_000


@pytest.fixture
async def months(past: PostgresEnvironment, database: Connection) -> None:
    """Add partitions for months that are over, as if the store were that old."""
    await past.offline.maintain()
    first = month_of(datetime.now(UTC))
    assert first > OLD_MONTHS[-1]
    for table in ("_history", "_events"):
        await database.execute(
            f"""
            ALTER TABLE {table} DETACH PARTITION {table}_early;
            ALTER TABLE {table} ATTACH PARTITION {table}_early
                FOR VALUES FROM (MINVALUE) TO ({OLD_MONTHS[0].start})
            """
        )
        month = OLD_MONTHS[0]
        while month < first:
            await database.execute(
                f"CREATE TABLE {table}_{month.name} PARTITION OF {table}"
                f" FOR VALUES FROM ({month.start}) TO ({month.later(1).start})"
            )
            month = month.later(1)


async def partitions(database: Connection, table: str = "_history") -> set[str]:
    names = await history_sql.partitions_of(database, table)
    return {name.removeprefix(f"{table}_") for name in names}


async def values(past: PostgresEnvironment) -> list[Any]:
    sql = "SELECT value_int FROM feature_history ORDER BY value_int"
    return [number for (number,) in await rows(past, sql)]


async def value_on(past: PostgresEnvironment, day: int, entity_id: str = "u1") -> int | None:
    [[found]] = await past.offline.as_of(["clicks"], [Point(entity_id, from_micros(_day(day)))])
    return None if found is None else int(found.value)


# Two values of u1 each month, and one of u2 in January.
TOLD = [
    *(value(number, 1 + 15 * number) for number in range(1, 10)),
    value(100, 5, entity_id="u2"),
    value(200, 20, written=300),
]
STAY = [*range(6, 10), 100, 200]


@pytest.mark.usefixtures("months")
async def test_months_that_are_over_are_replaced_by_the_rows_that_stay(
    past: PostgresEnvironment, database: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_sql, "PAGES_AT_ONCE", 1)
    await past.offline.append([*TOLD, *(value(1_000 + n, -n) for n in range(300))])
    before = await partitions(database)
    counted = await past.offline.prune(history=START_OF_APRIL, events=None, dry_run=True)
    assert counted == Pruned(history=305)
    assert await partitions(database) == before
    assert await past.offline.prune(history=START_OF_APRIL, events=None) == counted
    assert await partitions(database) == before - {month.name for month in OLD_MONTHS}
    assert await values(past) == STAY
    assert await database.fetchval("SELECT count(*) FROM _history_early") == 2
    assert [await value_on(past, day) for day in (91, 106, 200)] == [6, 7, 9]
    assert await value_on(past, 91, "u2") == 100
    assert await past.offline.prune(history=START_OF_APRIL, events=None) == Pruned()
    # The months can be written to, and pruned, as before.
    await past.offline.append([value(300, 2), value(301, 40, entity_id="u3", written=92)])
    assert await database.fetchval("SELECT count(*) FROM _history_early") == 4
    await past.offline.prune(history=datetime(2026, 6, 1, tzinfo=UTC), events=None)
    assert await values(past) == [9, 100, 200, 301]
    await past.offline.maintain()


@pytest.mark.usefixtures("months")
async def test_the_new_partition_has_the_indexes_of_the_others(
    past: PostgresEnvironment, database: Connection
) -> None:
    async def indexes() -> list[str]:
        found = await database.fetch(
            "SELECT parent.relname FROM pg_index JOIN pg_inherits ON inhrelid = indexrelid"
            " JOIN pg_class AS parent ON parent.oid = inhparent"
            " WHERE indrelid = '_history_early'::regclass ORDER BY 1"
        )
        return [name for (name,) in found]

    before = await indexes()
    await past.offline.append(TOLD)
    await past.offline.prune(history=START_OF_APRIL, events=None)
    assert await indexes() == before
    assert len(before) == 3


@pytest.mark.usefixtures("months")
async def test_rows_that_arrive_while_months_are_merged_stay(
    past: PostgresEnvironment, database: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    swap = partition_tables.Merge.swap

    async def arrive(merge: partition_tables.Merge, late: str | None) -> None:
        await past.offline.append([value(50, 31, written=32), value(51, 2, entity_id="new")])
        await swap(merge, late)

    monkeypatch.setattr(partition_tables.Merge, "swap", arrive)
    await past.offline.append(TOLD)
    await past.offline.prune(history=START_OF_APRIL, events=None)
    assert OLD_MONTHS[0].name not in await partitions(database)
    assert await values(past) == [*range(6, 10), 50, 51, 100, 200]


@pytest.mark.usefixtures("months")
async def test_values_that_are_dropped_while_months_are_merged_do_not_return(
    past: PostgresEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    swap, other = partition_tables.Merge.swap, msgspec.structs.replace(TOLD[-1], feature="other")
    dropping: list[asyncio.Task[int]] = []

    async def drop(merge: partition_tables.Merge, late: str | None) -> None:
        dropping.append(asyncio.create_task(past.offline.drop("clicks")))
        # It waits for the merge, or it has ended before the merged partition is attached.
        await asyncio.wait(dropping, timeout=0.3)
        await swap(merge, late)

    monkeypatch.setattr(partition_tables.Merge, "swap", drop)
    await past.offline.append([*TOLD, other])
    await past.offline.prune(history=START_OF_APRIL, events=None)
    assert await dropping[0] == len(STAY)
    assert await values(past) == [200]


@pytest.mark.usefixtures("months")
async def test_while_a_reader_has_a_snapshot_rows_are_deleted_and_no_month_is_removed(
    past: PostgresEnvironment, database: Connection
) -> None:
    await past.offline.append(TOLD)
    before = await partitions(database)
    async with database.transaction(isolation="repeatable_read"):
        count = await database.fetchval("SELECT count(*) FROM _history")
        pruned = await past.offline.prune(history=START_OF_APRIL, events=None)
        assert pruned == Pruned(history=5)
        assert await database.fetchval("SELECT count(*) FROM _history") == count
    assert await values(past) == STAY
    assert await partitions(database) == before
    assert await database.fetchval("SELECT to_regclass($1)", MERGED) is None


@pytest.mark.direct
@pytest.mark.usefixtures("months")
async def test_a_user_who_may_not_remove_months_can_prune(
    settings: Settings, past: PostgresEnvironment, outbox: MemoryOutbox, database: Connection
) -> None:
    schema, role = settings.postgres.schema, f"guest_{settings.postgres.schema}"
    await database.execute(
        f"CREATE ROLE {role}; GRANT USAGE ON SCHEMA {schema} TO {role};"
        f" GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {role};"
        f" GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO {role}"
    )
    await past.offline.append(TOLD)
    url = f"{settings.postgres.url}?options=-c%20role%3D{role}"
    guest = await open_postgres(settings.replace(postgres={"url": url}), SystemClock(), outbox)
    try:
        pruned = await guest.offline.prune(history=START_OF_APRIL, events=None)
        assert pruned == Pruned(history=5)
        assert await values(guest) == STAY
    finally:
        await guest.close()
        await database.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


@pytest.mark.usefixtures("months")
async def test_months_of_events_that_every_group_has_committed_are_removed(
    past: PostgresEnvironment, database: Connection, outbox: MemoryOutbox
) -> None:
    for number in range(10):
        micros = _day(1 + 15 * number)
        for partition in (0, 1):
            outbox.put(
                (f"{micros}-{number}", micros, "click", "u1", f"e{number}", micros, {}),
                kind="events",
                partition=partition,
            )
    before = await partitions(database, "_events")
    assert await past.offline.prune(history=None, events=START_OF_APRIL) == Pruned()
    outbox.done[0] = f"{_day(1 + 15 * 2)}-2"
    outbox.done[1] = f"{_day(1 + 15 * 9)}-9"
    counted = await past.offline.prune(history=None, events=START_OF_APRIL, dry_run=True)
    assert counted == Pruned(events=9)
    assert await partitions(database, "_events") == before
    assert await past.offline.prune(history=None, events=START_OF_APRIL) == counted
    assert await partitions(database, "_events") == before - {m.name for m in OLD_MONTHS}
    left = await database.fetch("SELECT partition, event_id FROM _events ORDER BY 1, received_at")
    assert [tuple(row) for row in left] == [
        *((0, f"e{n}") for n in range(3, 10)),
        *((1, f"e{n}") for n in range(6, 10)),
    ]


FILL_JANUARY = """
INSERT INTO _history (feature, entity, entity_id, kind, value, as_of, written_at, cause)
SELECT 'clicks', 'User', 'u' || n % 20, 'int', to_json(n), t, t, 'e' || n
FROM (SELECT n, timestamptz '2026-01-01' + n * interval '1 s' AS t FROM generate_series(1, $1) n)
"""


@pytest.mark.usefixtures("months")
async def test_old_months_are_dropped_without_a_write_for_each_of_their_rows(
    past: PostgresEnvironment, database: Connection
) -> None:
    await past.offline.append([value(0, 1, entity_id=f"u{n}") for n in range(20)])
    logged = dict[int, int]()
    for count, end in ((1_000, START_OF_APRIL), (40_000, datetime(2026, 6, 1, tzinfo=UTC))):
        where = "_history_2026_01" if count == 1_000 else "_history_2026_05"
        shift = "" if count == 1_000 else " + interval '120 days'"
        await database.execute(FILL_JANUARY.replace("'1 s' AS t", f"'1 s'{shift} AS t"), count)
        assert await database.fetchval(f"SELECT count(*) FROM {where}") >= count
        await database.execute("CHECKPOINT")
        start = await database.fetchval("SELECT pg_current_wal_lsn()")
        pruned = await past.offline.prune(history=end, events=None)
        assert pruned.history >= count - 20
        sql = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), $1)::bigint"
        logged[count] = await database.fetchval(sql, start)
        assert await database.fetchval("SELECT to_regclass($1)", where) is None
        assert await database.fetchval("SELECT count(*) FROM _history") == 20
    # A write for each row would log at least 50 bytes; autovacuum may log some meanwhile.
    assert logged[40_000] - logged[1_000] < 39_000 * 50 / 2


FILL_EVENTS = """
INSERT INTO _events
    (partition, received_at, "timestamp", position, event_type, entity_id, event_id, payload)
SELECT 0, t, t, (extract(epoch FROM t) * 1000)::bigint || '-0', 'click', 'u1', 'e' || n, '{}'
FROM (SELECT n, $2::timestamptz + n * interval '1 s' AS t FROM generate_series(1, $1) n)
"""


@pytest.mark.usefixtures("months")
async def test_old_months_of_events_are_dropped_without_a_write_for_each_of_them(
    past: PostgresEnvironment, database: Connection, outbox: MemoryOutbox
) -> None:
    outbox.done[0] = f"{_day(300)}-0"
    logged = dict[int, int]()
    for count, month in ((1_000, 1), (40_000, 5)):
        start = datetime(2026, month, 1, tzinfo=UTC)
        await database.execute(FILL_EVENTS, count, start)
        await database.execute("CHECKPOINT")
        before = await database.fetchval("SELECT pg_current_wal_lsn()")
        end = datetime(2026, month + 1, 1, tzinfo=UTC)
        assert await past.offline.prune(history=None, events=end) == Pruned(events=count)
        sql = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), $1)::bigint"
        logged[count] = await database.fetchval(sql, before)
        assert await database.fetchval("SELECT to_regclass($1)", f"_events_2026_{month:02}") is None
    # Four months are dropped the second time.
    assert logged[40_000] < 4 * logged[1_000] < 2_000_000


async def test_a_series_is_dropped_in_portions(
    past: PostgresEnvironment, database: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "ROWS_AT_ONCE", 3)
    await past.offline.append([*TOLD, value(1, 400, entity_id="u9")])
    other = [msgspec.structs.replace(each, feature="views") for each in TOLD]
    await past.offline.append(other)
    assert await past.offline.drop("clicks") == len(TOLD) + 1
    assert await database.fetchval("SELECT array_agg(DISTINCT feature) FROM _series") == ["views"]
    assert await rows(past, "SELECT count(*) FROM feature_history") == [(len(TOLD),)]
    assert await past.offline.drop("clicks") == 0
