"""A lake whose tables are in Iceberg's own REST catalog, and its files in a real bucket."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier

from engines.lakes import Bucket, rest_catalog, s3_bucket
from headwater.backends.connect import connect
from headwater.backends.lake.store import LakeOfflineStore, open_catalog
from headwater.backends.lake.tables import LakeConflictError, LakeTable
from headwater.backends.runners.inline import InlineRunner
from headwater.core.clock import SystemClock
from headwater.errors import BackendUnavailableError
from headwater.ports import LakeTail
from headwater.settings.schema import Settings
from tests.backends.duckdb.embedded import Embedded, after, change, embedded
from tests.backends.lake.lakes import SEGMENT_ROWS
from tests.backends.lake.test_forgetting import CANARY, InterruptedTail, holding
from tests.backends.lake.test_postgres_tail import click, expected, logged, store_of
from tests.servers import quiet_port


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with s3_bucket() as started:
        yield started


@pytest.fixture(scope="module")
def catalog(bucket: Bucket) -> Iterator[str]:
    with rest_catalog(bucket) as url:
        yield url


@pytest.fixture
def lake(bucket: Bucket, catalog: str, tmp_path: Path) -> Settings:
    """Return the settings of a home whose tables have a namespace of their own."""
    name = tmp_path.name
    return bucket.settings(tmp_path / "home", name, catalog=catalog, namespace=name)


def lake_of(settings: Settings, parts: Embedded, tail: LakeTail | None = None) -> LakeOfflineStore:
    """Open the lake over the tail of a home."""
    store = LakeOfflineStore(
        tail or parts.tail,
        settings.lake,
        open_catalog(settings.lake, ""),
        parts.home.scratch,
        SystemClock(),
        settings.offline,
        InlineRunner(),
    )
    store.create()
    return store


async def test_tables_are_created_filled_read_and_forgotten(
    lake: Settings, bucket: Bucket, tmp_path: Path
) -> None:
    opened = await connect(lake, SystemClock())
    async with store_of(lake) as store:
        assert [table.rows for table in (await store.lake.init()).tables] == [0, 0]
        await click(store, range(20))
        await opened.offline.maintain()
        await click(store, range(20, 35), CANARY)
        assert await logged(opened.offline) == expected(35)
        history, events = (await store.lake.compact()).tables
        assert (history.rows, events.rows) == (35, 35)
        assert await logged(opened.offline) == expected(35)
        # Another client of the catalog finds them, without settings of ours.
        server = RestCatalog("any", uri=lake.lake.catalog)
        assert len(server.list_tables(lake.lake.namespace)) == 2
        found = server.load_table((lake.lake.namespace, "history"))
        assert found.metadata.current_snapshot_id == history.snapshot_id
        server.close()
        assert holding(bucket.download(tmp_path / "objects"), CANARY)
        forgotten = await store.admin.forget("User", CANARY, reason="asked")
        assert (forgotten.history, forgotten.events) == (15, 15)
        assert holding(bucket.download(tmp_path / "objects"), CANARY) == []
        assert await logged(opened.offline) == expected(20)
        history, _ = (await store.lake.status()).tables
        assert history.snapshots == 1
    await opened.lifecycle.close()
    assert not (tmp_path / "home" / "iceberg.sqlite").exists()


def test_the_catalog_refuses_a_change_that_another_one_overtook(
    lake: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (open_catalog(lake.lake, "") for _ in range(2))
    first, second = (
        LakeTable(each, lake.lake.namespace, "history", lake.lake.url) for each in (one, other)
    )
    first.create()
    load = other.load_table

    def load_and_be_overtaken(identifier: str | Identifier) -> Table:
        table = load(identifier)
        monkeypatch.undo()
        first.commit(first.state())
        return table

    # Of a table without a snapshot, and of one with.
    for _ in range(2):
        base = second.state()
        monkeypatch.setattr(other, "load_table", load_and_be_overtaken)
        with pytest.raises(LakeConflictError) as refused:
            second.commit(base)
        assert isinstance(refused.value.__cause__, CommitFailedException)
    second.commit(second.state())
    assert len(first.load().metadata.snapshots) == 3
    for each in (one, other):
        each.close()


async def test_two_writers_without_a_lock_move_each_row_once(
    lake: Settings, bucket: Bucket, tmp_path: Path
) -> None:
    with embedded(tmp_path / "home", SEGMENT_ROWS) as parts:
        tail = InterruptedTail(parts.home, parts.erasures)
        store, other = lake_of(lake, parts, tail), lake_of(lake, parts)
        for start in range(0, 3 * SEGMENT_ROWS, SEGMENT_ROWS):
            numbers = range(start, start + SEGMENT_ROWS)
            await parts.online.put([change(n, as_of=after(n)) for n in numbers])
            tail.meanwhile = lambda: asyncio.run(other.maintain())
            await store.maintain()
        rows = (await store.query("SELECT value_int FROM feature_history ORDER BY 1", {})).rows
        assert [value for (value,) in rows] == [*range(3 * SEGMENT_ROWS)]
        # The file of a refused change is gone.
        [history, _] = await store.status()
        data = [name for name in bucket.objects() if f"{tmp_path.name}/history/data" in name]
        assert (history.rows, history.files, len(data)) == (30, 3, 3)
        for each in (store, other):
            each.close()


async def test_a_catalog_that_does_not_answer_is_named(lake: Settings) -> None:
    port = quiet_port()
    async with store_of(lake.replace(lake={"catalog": f"http://127.0.0.1:{port}"})) as store:
        with pytest.raises(BackendUnavailableError, match=rf"port={port}.*lake\.catalog"):
            await store.lake.init()
