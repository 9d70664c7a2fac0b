"""Rows come into a lake exactly once, whatever happens to the processes that move them."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.serializers import ToOutputFile

from headwater.backends.lake.history import LakeHistory
from headwater.backends.lake.store import LakeOfflineStore, catalog_in_home, open_catalog
from headwater.backends.lake.tables import UPTO, LakeConflictError, LakeTable
from headwater.errors import HomeError, LakeAheadError
from tests.backends.duckdb.embedded import Embedded, after, change, embedded
from tests.backends.lake.lakes import SEGMENT_ROWS, lake_of, settings_of
from tests.backends.lake.rolling_process import UnlockedTail

_KILLS = 24
_VALUES = "SELECT value_int FROM feature_history ORDER BY as_of"


async def values(store: LakeOfflineStore) -> list[int]:
    return [value for (value,) in (await store.query(_VALUES, {})).rows]


def test_a_change_that_was_begun_before_another_one_is_refused(tmp_path: Path) -> None:
    with embedded(tmp_path / "home", SEGMENT_ROWS) as parts:
        tables = lake_of(tmp_path, parts).tables
        tail = UnlockedTail(parts.home, parts.erasures)
        first, second = LakeHistory(tail, tables), LakeHistory(tail, tables)
        with first.lock(wait=True), second.lock(wait=True):
            first.fence()
            with pytest.raises(LakeConflictError):
                second.fence()
        with second.lock(wait=True):
            second.fence()


class OvertakenTable(LakeTable):
    """A table of which another thread reads a later snapshot after each read."""

    meanwhile: Callable[[], object] | None = None

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name == "_read" and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()


async def test_a_reader_gets_the_files_of_its_own_snapshot_whatever_other_threads_read(
    tmp_path: Path,
) -> None:
    with embedded(tmp_path / "home", SEGMENT_ROWS) as parts:
        store = lake_of(tmp_path, parts)
        for start in (0, SEGMENT_ROWS):
            await parts.online.put(
                [change(n, as_of=after(n)) for n in range(start, start + SEGMENT_ROWS)]
            )
            await store.maintain()
        first, _ = store.tables["history"].load().metadata.snapshots
        lake = settings_of(tmp_path).lake
        with closing(open_catalog(lake, catalog_in_home(parts.home.path))) as catalog:
            table = OvertakenTable(catalog, lake.namespace, "history", lake.url)
            table.meanwhile = table.state
            state = table.state(first.snapshot_id)
        assert (state.mark, len(state.files)) == (str(SEGMENT_ROWS), 1)


@pytest.mark.chaos
async def test_two_writers_killed_at_random_steps_leave_each_row_once_at_every_moment(
    tmp_path: Path,
) -> None:
    with embedded(tmp_path / "home", SEGMENT_ROWS) as parts:
        store = lake_of(tmp_path, parts)
        command = [sys.executable, "-m", "tests.backends.lake.rolling_process"]
        written = reads = 0
        rollers = await asyncio.create_subprocess_exec(*command, str(tmp_path), str(_KILLS))
        while rollers.returncode is None:
            batch = range(written, written + 7)
            await parts.online.put([change(n, as_of=after(n)) for n in batch])
            written, reads = written + len(batch), reads + 1
            assert await values(store) == [*range(written)]
        assert rollers.returncode == 0
        assert reads > _KILLS / 4
        await store.maintain()
        assert await values(store) == [*range(written)]
        [moved, _] = await store.status()
        assert moved.rows > 100


async def test_an_expiry_that_another_writer_overtakes_is_refused_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with embedded(tmp_path / "home", SEGMENT_ROWS) as parts:
        store = lake_of(tmp_path, parts)
        for start in (0, SEGMENT_ROWS):
            numbers = range(start, start + SEGMENT_ROWS)
            await parts.online.put([change(n, as_of=after(n)) for n in numbers])
            await store.maintain()
        write = ToOutputFile.table_metadata

        def overtaken(*written: Any) -> None:
            monkeypatch.undo()
            with store.tables["history"].load().transaction() as change:
                change.set_properties(owner="spark")
            write(*written)

        monkeypatch.setattr(ToOutputFile, "table_metadata", staticmethod(overtaken))
        with pytest.raises(LakeConflictError, match="another writer has changed"):
            await store.expire(after(10**9))
        assert await store.expire(after(10**9)) > 0
        assert await values(store) == [*range(2 * SEGMENT_ROWS)]


async def test_a_home_that_is_an_older_copy_than_its_lake_is_refused_until_both_are_of_one_time(
    tmp_path: Path,
) -> None:
    database, copy = tmp_path / "home" / "headwater.db", tmp_path / "copy.db"

    async def write(parts: Embedded, numbers: range) -> None:
        await parts.online.put([change(n, as_of=after(n)) for n in numbers])

    for numbers in (range(10), range(10, 20)):
        with embedded(tmp_path / "home", SEGMENT_ROWS) as parts:
            store = lake_of(tmp_path, parts)
            await write(parts, numbers)
            await store.maintain()
            if not copy.exists():
                with closing(sqlite3.connect(copy)) as target:
                    parts.home.reader.backup(target)
    for log in ("-wal", "-shm"):
        database.with_name(database.name + log).unlink(missing_ok=True)
    copy.replace(database)
    with embedded(tmp_path / "home", SEGMENT_ROWS) as parts:
        store = lake_of(tmp_path, parts)
        # More rows than the copy lacks, with their numbers.
        await write(parts, range(100, 115))
        with pytest.raises(LakeAheadError, match=r"history up to number 20, but .* up to 10 only"):
            await values(store)
        with pytest.raises(LakeAheadError):
            await store.maintain()
        assert parts.tail_rows() == 15
        history = store.tables["history"].load()
        snapshots = [s for s in history.snapshots() if s.summary and s.summary[UPTO] == "10"]
        [first] = [snapshot.snapshot_id for snapshot in snapshots]
        history.manage_snapshots().set_current_snapshot(first).commit()
        assert await values(store) == [*range(10), *range(100, 115)]
        await store.maintain()
        assert parts.tail_rows() == 5
        assert await values(store) == [*range(10), *range(100, 115)]


async def test_a_home_with_segments_moves_them_and_refuses_readers_without_the_lake(
    tmp_path: Path,
) -> None:
    with embedded(tmp_path / "home", SEGMENT_ROWS) as parts:
        await parts.online.put([change(n, as_of=after(n)) for n in range(2 * SEGMENT_ROWS + 3)])
        await parts.history.maintain()
        assert parts.live()
        store = lake_of(tmp_path, parts)
        store.adopt(parts.tail, parts.home.segments)
        store.adopt(parts.tail, parts.home.segments)
        assert await values(store) == [*range(2 * SEGMENT_ROWS + 3)]
        with pytest.raises(HomeError, match=r"set lake\.url"):
            await parts.history.query(_VALUES, {})
