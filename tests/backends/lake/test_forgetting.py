"""A forgotten entity is in no file of the lake, and retention rewrites files."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from headwater.backends.lake.history import LakeHistory
from headwater.core.duckdb_session import glob_literal
from headwater.ports import LogKind, TailFile
from tests.backends.duckdb.embedded import after, change, embedded
from tests.backends.lake.lakes import SEGMENT_ROWS, lake_of
from tests.backends.lake.rolling_process import UnlockedTail

CANARY = "person-4711"


def holding(folder: Path, canary: str) -> list[str]:
    """Return the files that have a text, in their bytes or in a column of a Parquet file."""
    found = []
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            content = file.read_bytes()
            if file.suffix == ".parquet":
                rows = duckdb.sql(f"SELECT * FROM read_parquet({glob_literal(file)})").fetchall()
                content += repr(rows).encode()
            if canary.encode() in content:
                found.append(file.name)
    return found


async def test_no_file_of_the_lake_has_a_forgotten_entity(tmp_path: Path) -> None:
    with embedded(tmp_path / "home", SEGMENT_ROWS) as parts:
        store = lake_of(tmp_path, parts)
        for start in range(0, 9 * SEGMENT_ROWS, SEGMENT_ROWS):
            numbers = range(start, start + SEGMENT_ROWS)
            ids = [CANARY if number % 7 == 0 else f"u{number}" for number in numbers]
            await parts.online.put(
                [
                    change(n, entity_id=each, as_of=after(n))
                    for n, each in zip(numbers, ids, strict=True)
                ]
            )
            await store.maintain()
        # The file of a writer that died before its commit.
        data = tmp_path / "lake" / "history" / "data"
        [some, *_] = holding(tmp_path / "lake", CANARY)
        orphan = data / "history-0000-1023-01999999-0000-7000-8000-000000000000.parquet"
        orphan.write_bytes((data / some).read_bytes())
        removed = await store.forget("User", CANARY)
        assert removed.history == 13
        assert holding(tmp_path / "lake", CANARY) == []
        counts = "SELECT count(*), count(DISTINCT entity_id) FROM feature_history"
        left = await store.query(counts, {})
        assert left.rows == [(77, 77)]


class InterruptedTail(UnlockedTail):
    """A tail whose caller lost its lock in the middle of a change, without noticing."""

    meanwhile: Callable[[], None] = staticmethod(lambda: None)

    def export(self, *args: Any, **named: Any) -> dict[LogKind, TailFile] | None:
        exported = super().export(*args, **named)
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        return exported


async def test_rows_that_another_writer_moves_while_they_are_forgotten_are_forgotten_too(
    tmp_path: Path,
) -> None:
    with embedded(tmp_path / "home", SEGMENT_ROWS) as parts:
        tail = InterruptedTail(parts.home, parts.erasures)
        store, other = lake_of(tmp_path, parts, tail), lake_of(tmp_path, parts)
        rows = [change(n, entity_id=CANARY, as_of=after(n)) for n in range(SEGMENT_ROWS)]
        await parts.online.put(rows)
        tail.meanwhile = lambda: asyncio.run(other.maintain())
        await store.forget("User", CANARY)
        assert holding(tmp_path / "lake", CANARY) == []
        assert (await store.query("SELECT * FROM feature_history", {})).rows == []


async def test_the_file_of_a_refused_change_is_deleted(tmp_path: Path) -> None:
    with embedded(tmp_path / "home", SEGMENT_ROWS) as parts:
        tail = InterruptedTail(parts.home, parts.erasures)
        store = lake_of(tmp_path, parts, tail)
        await parts.online.put([change(n, entity_id=CANARY) for n in range(SEGMENT_ROWS)])
        other = LakeHistory(UnlockedTail(parts.home, parts.erasures), store.tables)

        def fence() -> None:
            with other.lock(wait=True):
                other.fence()

        tail.meanwhile = fence
        await store.maintain()
        assert holding(tmp_path / "lake", CANARY) == []
        assert parts.tail_rows() == SEGMENT_ROWS


class OvertakenTail(UnlockedTail):
    """A tail that does something else between the fence of an erasure and its deletion of files."""

    meanwhile: Callable[[], None] = staticmethod(lambda: None)

    def forget(self, *args: Any) -> None:
        self.meanwhile()
        super().forget(*args)


async def test_a_writer_that_lost_the_lock_commits_no_file_that_an_erasure_has_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with embedded(tmp_path / "home", SEGMENT_ROWS) as parts:
        tail = OvertakenTail(parts.home, parts.erasures)
        store = lake_of(tmp_path, parts, tail)
        late = lake_of(tmp_path, parts, UnlockedTail(parts.home, parts.erasures))
        await parts.online.put([change(n, as_of=after(n)) for n in range(SEGMENT_ROWS)])
        written, resumed, add = threading.Event(), threading.Event(), late.history.add

        def add_late(*args: Any, **named: Any) -> None:
            written.set()
            assert resumed.wait(60)
            add(*args, **named)

        monkeypatch.setattr(late.history, "add", add_late)
        moving = threading.Thread(target=lambda: asyncio.run(late.maintain()))

        def move() -> None:
            moving.start()
            assert written.wait(60)

        tail.meanwhile = move
        await store.forget("User", CANARY)
        resumed.set()
        await asyncio.to_thread(moving.join, 60)
        values = "SELECT value_int FROM feature_history ORDER BY 1"
        assert (await store.query(values, {})).rows == [(n,) for n in range(SEGMENT_ROWS)]
        await store.maintain()
        assert parts.tail_rows() == 0
        assert (await store.query(values, {})).rows == [(n,) for n in range(SEGMENT_ROWS)]
