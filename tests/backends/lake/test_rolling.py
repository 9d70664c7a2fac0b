"""Rows come into a lake exactly once, whatever happens to the processes that move them."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from headwater.backends.lake.history import LakeHistory
from headwater.backends.lake.store import LakeOfflineStore
from headwater.backends.lake.tables import LakeConflictError
from headwater.errors import HomeError
from tests.backends.duckdb.embedded import after, change, embedded
from tests.backends.lake.lakes import SEGMENT_ROWS, lake_of
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
