"""The history of a store on servers moves into a lake while everyone reads it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy.engine import make_url

from headwater import FeatureStore, ServiceEvent
from headwater.backends.connect import connect
from headwater.backends.lake.store import LakeOfflineStore, catalog_in_postgres
from headwater.backends.postgres import store as postgres_store
from headwater.backends.postgres.lake_tail import PostgresLakeTail
from headwater.core.clock import SystemClock, to_micros
from headwater.core.partitioning import partition_of
from headwater.errors import ConfigError, LakeAheadError
from headwater.ports import OfflineStore
from headwater.settings.schema import Settings
from tests.backends.lake.rolling_process import SERVERS
from tests.backends.lake.test_forgetting import CANARY, holding

_KILLS = 20
_PARTITIONS = 3
_VALUES = "SELECT value_int FROM feature_history ORDER BY value_int"
_EVENTS = "SELECT event_id FROM events ORDER BY 1"


@pytest.fixture
def lake(production: Settings, tmp_path: Path) -> Settings:
    return production.replace(
        home=tmp_path / "home",
        partitions=_PARTITIONS,
        offline={"segment_rows": 10, "segment_grace": "1s"},
        lake={"url": str(tmp_path / "lake")},
    )


def store_of(settings: Settings) -> FeatureStore:
    store = FeatureStore(settings=settings)

    @store.entity
    class User:
        user_id: str

    @store.feature(User, trigger="click")
    def clicked(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["n"])

    return store


async def click(store: FeatureStore, numbers: range, user: str = "u{n}") -> None:
    for n in numbers:
        await store.publish("click", user.format(n=n % 5), {"n": n}, event_id=f"e{n:06}")
    await store.drain()


async def logged(history: OfflineStore) -> tuple[list[int], list[str]]:
    values, events = await history.query(_VALUES, {}), await history.query(_EVENTS, {})
    return [value for (value,) in values.rows], [event_id for (event_id,) in events.rows]


def expected(written: int) -> tuple[list[int], list[str]]:
    return [*range(written)], [f"e{n:06}" for n in range(written)]


def variables(settings: Settings) -> dict[str, str]:
    return os.environ | {
        "HEADWATER_REDIS_URL": settings.redis.url,
        "HEADWATER_REDIS_PREFIX": settings.redis.prefix,
        "HEADWATER_POSTGRES_URL": settings.postgres.url,
        "HEADWATER_POSTGRES_SCHEMA": settings.postgres.schema,
        "HEADWATER_PARTITIONS": str(settings.partitions),
        "HEADWATER_HOME": settings.home,
        "HEADWATER_LAKE_URL": settings.lake.url,
        "HEADWATER_OFFLINE_SEGMENT_ROWS": str(settings.offline.segment_rows),
        "HEADWATER_OFFLINE_SEGMENT_GRACE": "1s",
    }


async def rows_in_postgres(settings: Settings, table: str) -> int:
    connection = await asyncpg.connect(settings.postgres.url)
    count: int = await connection.fetchval(
        f"SELECT count(*) FROM {settings.postgres.schema}.{table}"
    )
    await connection.close()
    return count


@pytest.mark.chaos
async def test_a_history_in_postgres_moves_while_rollers_die_and_old_and_new_readers_agree(
    lake: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_store, "_CHECK_SECONDS", 0.0)
    async with store_of(lake.replace(lake={"url": ""})) as store:
        await click(store, range(60))
    old = await connect(lake.replace(lake={"url": ""}), SystemClock())
    new = await connect(lake, SystemClock())
    written, agreed, refused = 60, 0, 0
    async with store_of(lake) as store:
        command = (sys.executable, "-m", "tests.backends.lake.rolling_process", SERVERS)
        rollers = await asyncio.create_subprocess_exec(*command, str(_KILLS), env=variables(lake))
        while rollers.returncode is None:
            await click(store, range(written, written + 7))
            written += 7
            assert await logged(new.offline) == expected(written)
            try:
                assert await logged(old.offline) == expected(written)
                agreed += 1
            except ConfigError as error:
                assert "set lake.url" in str(error)  # noqa: PT017 - it agrees until then
                refused += 1
        assert rollers.returncode == 0
        await store.lake.compact()
        assert await logged(new.offline) == expected(written)
        history, events = (await store.lake.status()).tables
        assert (history.rows, events.rows) == (written, written)
    assert (agreed > 0, refused > 0) == (True, True)
    assert await rows_in_postgres(lake, "_history") < written
    for each in (old, new):
        await each.lifecycle.close()


async def test_a_forgotten_entity_is_in_no_file_of_the_lake_and_in_no_table(
    lake: Settings, tmp_path: Path
) -> None:
    settings = lake.replace(offline={"segment_grace": "1h"})
    opened = await connect(settings, SystemClock())
    async with store_of(settings) as store:
        await click(store, range(30))
        await click(store, range(30, 40), CANARY)
        await store.lake.compact()
        await click(store, range(40, 45), CANARY)
        assert holding(tmp_path / "lake" / "events", CANARY)
        assert await rows_in_postgres(lake, "_history") >= 40  # none is deleted yet
        counted = await store.admin.forget("User", CANARY, reason="asked", dry_run=True)
        forgotten = await store.admin.forget("User", CANARY, reason="asked")
        assert (forgotten.history, forgotten.events) == (15, 15)
        assert (counted.history, counted.events) == (15, 15)
        assert holding(tmp_path / "lake", CANARY) == []
        for table in ("_history", "_events", "_series"):
            assert await rows_in_postgres(lake, f"{table} WHERE entity_id = '{CANARY}'") == 0
        assert await logged(opened.offline) == expected(30)
    await opened.lifecycle.close()


async def test_old_values_and_events_are_pruned_from_the_lake_and_from_postgres(
    lake: Settings,
) -> None:
    opened = await connect(lake, SystemClock())
    async with store_of(lake) as store:
        await click(store, range(20))
        await store.lake.compact()
        await click(store, range(20, 25))
        report = await store.admin.prune(history="1ms", events="1ms")
        assert report.history is not None
        assert report.events is not None
        assert (report.history.rows, report.events.rows) == (20, 25)
        values, events = await logged(opened.offline)
        assert (values, events) == ([*range(20, 25)], [])
    await opened.lifecycle.close()


async def test_a_postgres_that_is_an_older_copy_than_its_lake_is_refused(lake: Settings) -> None:
    connection = await asyncpg.connect(lake.postgres.url)
    await connection.execute(f"SET search_path = {lake.postgres.schema}")
    async with store_of(lake) as store:
        await click(store, range(10))
        await store.lake.compact()
        copied = await connection.fetch("SELECT moved, trimmed, deleted, kind FROM _lake")
        last = await connection.fetchval("SELECT last_value FROM _history_seq")
        await click(store, range(10, 20))
        await store.lake.compact()
    # As in a copy of that time, which new rows were written to.
    await connection.executemany(
        "UPDATE _lake SET moved = $1, trimmed = $2, deleted = $3 WHERE kind = $4",
        [tuple(row) for row in copied],
    )
    await connection.execute("DELETE FROM _history WHERE seq > $1", last)
    await connection.execute("SELECT setval('_history_seq', $1)", last)
    async with store_of(lake) as store:
        await click(store, range(20, 45))
        with pytest.raises(LakeAheadError, match=f"Postgres has moved rows up to {last} only"):
            await store.get_feature_history("clicked", "u1")
        with pytest.raises(LakeAheadError):
            await store.lake.compact()
    assert await rows_in_postgres(lake, f"_history WHERE seq > {last}") == 25
    await connection.close()


async def test_a_partition_without_new_events_costs_no_deletions(
    lake: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    deletions, execute = 0, PostgresLakeTail._execute  # noqa: SLF001 - what it asks Postgres

    async def counted(self: PostgresLakeTail, sql: str, *given: object) -> None:
        nonlocal deletions
        deletions += "DELETE FROM _events" in sql
        await execute(self, sql, *given)

    monkeypatch.setattr(PostgresLakeTail, "_execute", counted)

    async def moved_and_deleted(store: FeatureStore, numbers: range) -> None:
        await click(store, numbers, "u1")
        await store.lake.compact()
        while await rows_in_postgres(lake, "_events"):
            await store.lake.compact()

    async with store_of(lake) as store:
        await moved_and_deleted(store, range(5))
        quiet = next(p for p in range(_PARTITIONS) if p != partition_of("u1", _PARTITIONS))
        year_ago = to_micros(datetime.now(UTC) - timedelta(days=365)) // 1_000 << 20
        opened = await connect(lake, SystemClock())
        assert opened.lake is not None
        tables = await opened.lake()
        assert isinstance(tables, LakeOfflineStore)
        state = tables.tables["events"].state()
        marks = json.loads(state.mark) | {str(quiet): year_ago}
        tables.tables["events"].commit(state, mark=json.dumps(marks))
        await opened.lifecycle.close()
        await moved_and_deleted(store, range(5, 10))
        deletions = 0
        await moved_and_deleted(store, range(10, 15))
        assert 0 < deletions < 20


async def test_only_one_process_has_the_lock(lake: Settings) -> None:
    one, other = await connect(lake, SystemClock()), await connect(lake, SystemClock())
    assert one.lake is not None
    assert other.lake is not None
    first, second = await one.lake(), await other.lake()
    assert isinstance(first, LakeOfflineStore)
    assert isinstance(second, LakeOfflineStore)

    def hold() -> list[bool]:
        with first.history.lock(wait=True) as held, second.history.lock(wait=False) as both:
            answers = [held, both]
        with second.history.lock(wait=False) as later:
            return [*answers, later]

    assert await asyncio.to_thread(hold) == [True, False, True]
    for each in (one, other):
        await each.lifecycle.close()


def test_the_catalog_takes_the_password_and_refuses_what_it_does_not_read() -> None:
    given = Settings().replace(postgres={"url": "postgresql://ann@h/d", "password": "p4ss"})
    assert "ann:p4ss@h/d" in catalog_in_postgres(given.postgres)
    several = given.replace(postgres={"hosts": "one:5433,[::1]"})
    address = make_url(catalog_in_postgres(several.postgres))
    assert address.host is None
    assert address.query["host"] == "one,::1"
    assert address.query["port"] == "5433,5432"
    assert address.query["target_session_attrs"] == "read-write"
    rotating = given.replace(postgres={"credentials": "a:b"})
    with pytest.raises(ConfigError, match="name a REST catalog"):
        catalog_in_postgres(rotating.postgres)
    with pytest.raises(ConfigError, match="name a REST catalog"):
        catalog_in_postgres(given.replace(postgres={"pooler": "transaction"}).postgres)
