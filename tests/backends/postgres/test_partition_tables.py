"""Monthly partitions are created ahead of time, without blocking other processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.environment import PostgresEnvironment, open_postgres
from headwater.backends.postgres.history_sql import partitions_of
from headwater.backends.postgres.migrate import migrate
from headwater.backends.postgres.partition_tables import (
    MAX_MONTHS_AHEAD,
    MONTHS_AHEAD,
    Month,
    month_of,
)
from headwater.core.clock import to_micros
from headwater.ports import Point
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.backends.postgres.outbox import MemoryOutbox
from tests.backends.postgres.story import START, change, rows, values


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def past(
    settings: Settings, outbox: MemoryOutbox, clock: ManualClock
) -> AsyncIterator[PostgresEnvironment]:
    opened = await open_postgres(settings, clock, outbox)
    yield opened
    await opened.close()


async def months(database: Connection, table: str = "_history") -> list[str]:
    """Return the names of a table's partitions, without the prefix."""
    found = await database.fetch(
        "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = $1::regclass", table
    )
    return sorted(name.removeprefix(table + "_") for (name,) in found)


def put(outbox: MemoryOutbox, *moments: datetime) -> None:
    """Add a value and an event of each moment."""
    for number, moment in enumerate(moments):
        micros = to_micros(moment)
        outbox.put(("clicks", "User", "u1", "int", number, micros, micros, "test"))
        outbox.put((f"{micros}-0", micros, "click", "u1", f"e{number}", micros, {}), kind="events")


async def test_the_current_month_and_some_ahead_are_there_from_the_start(
    past: PostgresEnvironment, database: Connection
) -> None:
    first = month_of(datetime.now(UTC))
    expected = [first.later(n).name for n in range(MONTHS_AHEAD + 1)]
    for table in ("_history", "_events"):
        assert await months(database, table) == [*expected, "early", "late"]


async def test_every_moment_has_a_place(
    past: PostgresEnvironment, outbox: MemoryOutbox, database: Connection
) -> None:
    now = datetime.now(UTC)
    put(outbox, datetime(1, 1, 1, tzinfo=UTC), now, datetime(9999, 12, 31, tzinfo=UTC))
    assert await values(past) == [0, 1, 2]
    places = await database.fetch("SELECT tableoid::regclass::text FROM _history ORDER BY as_of")
    assert [name for (name,) in places] == [
        "_history_early",
        f"_history_{month_of(now).name}",
        "_history_late",
    ]


async def test_months_are_added_as_time_goes_on_and_their_rows_move_there(
    past: PostgresEnvironment, outbox: MemoryOutbox, database: Connection, clock: ManualClock
) -> None:
    await past.offline.maintain()
    before = await months(database)
    clock.advance("400d")
    ahead = clock.now()
    put(outbox, ahead, datetime(9999, 1, 1, tzinfo=UTC))
    answers = await values(past)
    assert await database.fetchval("SELECT count(*) FROM _history_late") == 2

    await past.offline.maintain()
    now = month_of(ahead)
    assert set(await months(database)) > {*before, now.name, now.later(MONTHS_AHEAD).name}
    for table, view in (("_history", "feature_history"), ("_events", "events")):
        assert await database.fetchval(f"SELECT count(*) FROM {table}_{now.name}") == 1
        assert await database.fetchval(f"SELECT count(*) FROM {table}_late") == 1
        assert await rows(past, f"SELECT count(*) FROM {view}") == [(2,)]
    assert await values(past) == answers
    after_this = await months(database)
    await past.offline.maintain()
    assert await months(database) == after_this


async def test_a_month_can_be_several_tables(
    settings: Settings, outbox: MemoryOutbox, database: Connection, clock: ManualClock
) -> None:
    first = month_of(datetime.now(UTC))
    split = settings.replace(postgres={"tables_per_month": 3})
    before = await open_postgres(settings, clock, outbox)
    await before.offline.maintain()
    await before.close()
    past = await open_postgres(split, clock, outbox)
    try:
        clock.advance("400d")
        await past.offline.maintain()
        new = month_of(clock.now())
        names = [f"_history_{new.name}_of_{part}" for part in range(3)]
        tables = await partitions_of(database, "_history")
        assert set(names) < set(tables)
        assert f"_history_{first.name}" in tables  # a month that was there stays as it was
        moments = [clock.now() - timedelta(seconds=n) for n in range(60)]
        await past.offline.append(
            [
                change(n, (moment - START).total_seconds(), entity_id=f"u{n % 20}")
                for n, moment in enumerate(moments)
            ]
        )
        counts = [await database.fetchval(f"SELECT count(*) FROM {name}") for name in names]
        assert sum(counts) == 60
        assert all(counts)
        points = [Point(f"u{n}", moments[20]) for n in range(20)]
        found = [
            found and int(found.value) for [found] in await past.offline.as_of(["clicks"], points)
        ]
        assert found == [*range(20, 40)]
        # A search for the last value reads one table, from the newest month back.
        plan = await database.fetch(
            "EXPLAIN (ANALYZE, TIMING OFF) SELECT * FROM _history WHERE feature = 'clicks'"
            " AND hashtextextended(entity_id, 0) = hashtextextended('u1', 0) AND entity_id = 'u1'"
            " ORDER BY as_of DESC, written_at DESC, seq DESC LIMIT 1"
        )
        lines = [line for (line,) in plan if "Scan" in line and "never executed" not in line]
        assert sum(f"_history_{new.name}" in line for line in lines) == 1
        pruned = await past.offline.prune(history=clock.now(), events=None)
        assert pruned.history == 40
    finally:
        await past.close()


@pytest.mark.parametrize(
    "start", [datetime(2090, 6, 1, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)]
)
async def test_a_clock_that_is_far_off_adds_no_months_for_the_years_between(
    settings: Settings,
    outbox: MemoryOutbox,
    database: Connection,
    monkeypatch: pytest.MonkeyPatch,
    start: datetime,
) -> None:
    clock = ManualClock(start)
    monkeypatch.setattr("headwater.backends.postgres.migrate.SystemClock", lambda: clock)
    await migrate(settings)
    here = month_of(datetime.now(UTC))
    past = await open_postgres(settings, clock, outbox)
    try:
        put(outbox, datetime.now(UTC), datetime(2090, 6, 1, tzinfo=UTC))
        for _ in range(2):
            await past.offline.maintain()
        ahead = MAX_MONTHS_AHEAD if start.year == 2090 else MONTHS_AHEAD
        expected = [here.later(n).name for n in range(ahead + 1)]
        for table in ("_history", "_events"):
            assert await months(database, table) == [*expected, "early", "late"]
            assert await database.fetchval(f"SELECT count(*) FROM {table}_late") == 1
        assert await values(past) == [0, 1]
    finally:
        await past.close()


async def test_migrating_adds_months_too(settings: Settings, database: Connection) -> None:
    await migrate(settings)
    newest = month_of(datetime.now(UTC)).later(MONTHS_AHEAD)
    for table in ("_history", "_events"):
        await database.execute(
            f"""
            DROP TABLE {table}_{newest.name};
            ALTER TABLE {table} DETACH PARTITION {table}_late;
            ALTER TABLE {table} ATTACH PARTITION {table}_late
                FOR VALUES FROM ({newest.start}) TO (MAXVALUE)
            """
        )
    assert await migrate(settings) == []
    assert newest.name in await months(database)


async def test_of_many_concurrent_maintenances_one_creates_the_partitions(
    settings: Settings, outbox: MemoryOutbox, database: Connection
) -> None:
    clock = ManualClock()
    processes = [await open_postgres(settings, clock, outbox) for _ in range(4)]
    clock.advance("200d")
    try:
        await asyncio.gather(*(process.offline.maintain() for process in processes))
        assert month_of(clock.now()).later(MONTHS_AHEAD).name in await months(database)
    finally:
        for process in processes:
            await process.close()


async def test_a_long_search_is_not_disturbed_and_the_months_come_later(
    past: PostgresEnvironment, outbox: MemoryOutbox, database: Connection, clock: ManualClock
) -> None:
    before = await months(database)
    clock.advance("200d")
    put(outbox, clock.now())
    async with database.transaction():
        await database.fetch("SELECT FROM _history")
        await past.offline.maintain()
    assert outbox.pending() == set()
    assert await months(database) == before
    await past.offline.maintain()
    assert await months(database) != before


@pytest.mark.direct
async def test_a_user_who_may_not_add_months_can_do_everything_else(
    past: PostgresEnvironment,
    settings: Settings,
    outbox: MemoryOutbox,
    database: Connection,
    clock: ManualClock,
) -> None:
    schema, role = settings.postgres.schema, f"guest_{settings.postgres.schema}"
    await database.execute(
        f"CREATE ROLE {role}; GRANT USAGE ON SCHEMA {schema} TO {role};"
        f" GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {role};"
        f" GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO {role}"
    )
    url = f"{settings.postgres.url}?options=-c%20role%3D{role}"
    guest = await open_postgres(settings.replace(postgres={"url": url}), clock, outbox)
    try:
        before = await months(database)
        clock.advance("200d")
        put(outbox, clock.now())
        await guest.offline.maintain()
        assert await values(guest) == [0]
        assert await months(database) == before
    finally:
        await guest.close()
        await database.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_month_has_a_name_and_a_first_moment() -> None:
    month = month_of(datetime(2026, 3, 31, 23, 59, tzinfo=UTC))
    assert (month.name, month.start) == ("2026_03", "'2026-03-01 00:00:00+00'")


def test_months_go_on_after_december() -> None:
    assert [Month(2026, 11).later(n).name for n in range(4)] == [
        "2026_11",
        "2026_12",
        "2027_01",
        "2027_02",
    ]


@given(st.integers(1, 9000), st.integers(1, 12), st.integers(0, 500), st.integers(0, 500))
def test_later_adds_up_and_keeps_the_order(year: int, number: int, a: int, b: int) -> None:
    month = Month(year, number)
    assert month.later(a).later(b) == month.later(a + b)
    assert (month.later(a) < month.later(b)) == (a < b)
    assert (month.later(a).name < month.later(b).name) == (a < b)
