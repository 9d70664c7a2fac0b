"""A forgotten entity is in no file of the lake, and retention rewrites files."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from pyiceberg.table import Table

from headwater.backends.lake.history import LakeHistory
from headwater.core.duckdb_session import glob_literal, session
from headwater.core.warehouses import load_extension
from headwater.errors import InvalidInputError
from headwater.ports import LogKind, TailFile
from tests.backends.duckdb.embedded import after, change, embedded
from tests.backends.lake.lakes import SEGMENT_ROWS, lake_of
from tests.backends.lake.rolling_process import UnlockedTail

CANARY = "person-4711"


def unpacked(file: Path) -> list[dict[str, Any]]:
    """Return the rows of a Parquet file, or of a manifest or list of manifests, as they are."""
    with TemporaryDirectory() as scratch, session(Path(scratch)) as duck:
        load_extension(duck, "avro")
        found = duck.run(f"SELECT * FROM read_{file.suffix[1:]}({glob_literal(file)})")
        names = [name for name, *_ in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def holding(folder: Path, canary: str) -> list[str]:
    """Return the files that have a text, in their bytes or in a row of Parquet or Avro."""
    found = []
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            content = file.read_bytes()
            if file.suffix in (".parquet", ".avro"):
                content += repr(unpacked(file)).encode()
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


async def test_tags_and_branches_that_kept_a_forgotten_entity_are_removed_and_reported(
    tmp_path: Path,
) -> None:
    with embedded(tmp_path / "home", SEGMENT_ROWS) as parts:
        store = lake_of(tmp_path, parts)
        await parts.online.put([change(n, entity_id=CANARY) for n in range(SEGMENT_ROWS - 1)])
        await parts.online.put([change(-1)])
        await store.maintain()
        history = store.tables["history"].load()
        tagged = history.metadata.current_snapshot_id
        assert tagged is not None
        changed = history.manage_snapshots().create_tag(tagged, "train")
        changed.create_branch(tagged, "audit").commit()
        await store.expire(after(10**9))  # which leaves them
        assert tagged in [s.snapshot_id for s in store.tables["history"].load().snapshots()]
        names = {"history.train", "history.audit"}
        assert (await store.forget("User", CANARY, dry_run=True)).refs == names
        assert holding(tmp_path / "lake", CANARY)
        assert (await store.forget("User", CANARY)).refs == names
        assert holding(tmp_path / "lake", CANARY) == []
        assert [*store.tables["history"].load().refs()] == ["main"]
        values = "SELECT value_int FROM feature_history"
        assert (await store.query(values, {})).rows == [(-1,)]


async def test_a_tag_that_is_made_during_an_erasure_is_removed_too(tmp_path: Path) -> None:
    with embedded(tmp_path / "home", SEGMENT_ROWS) as parts:
        tail = OvertakenTail(parts.home, parts.erasures)
        store = lake_of(tmp_path, parts, tail)
        await parts.online.put([change(n, entity_id=CANARY) for n in range(SEGMENT_ROWS)])
        await store.maintain()

        def tag() -> None:
            history = store.tables["history"].load()
            first = history.snapshots()[0].snapshot_id
            tail.meanwhile = lambda: None
            history.manage_snapshots().create_tag(first, "late").commit()

        tail.meanwhile = tag
        assert (await store.forget("User", CANARY)).refs == {"history.late"}
        assert holding(tmp_path / "lake", CANARY) == []


class InterruptedTail(UnlockedTail):
    """A tail whose caller lost its lock in the middle of a change, without noticing."""

    meanwhile: Callable[[], object] = staticmethod(lambda: None)

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


@pytest.mark.parametrize("action", ["forget", "expire"])
async def test_a_read_whose_metadata_is_deleted_meanwhile_takes_the_next_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    with embedded(tmp_path / "home", SEGMENT_ROWS) as parts:
        store, other = lake_of(tmp_path, parts), lake_of(tmp_path, parts)
        await parts.online.put([change(n, entity_id=f"u{n}") for n in range(SEGMENT_ROWS)])
        await other.maintain()
        table, meanwhile = store.tables["history"], [True]
        [first, *_] = table.load().snapshots()
        load = table.load

        async def change_it() -> None:
            if action == "forget":
                await other.forget("User", "u3")
            else:
                await other.append([change(-1)])
                await other.expire(after(10**9))

        def loaded() -> Table:
            answer = load()
            if meanwhile:
                meanwhile.clear()
                asyncio.run(change_it())
            return answer

        monkeypatch.setattr(table, "load", loaded)
        counted = await store.query("SELECT count(*) FROM feature_history", {})
        assert counted.rows == [(SEGMENT_ROWS - 1 if action == "forget" else SEGMENT_ROWS + 1,)]
        meanwhile.append(True)
        with pytest.raises(InvalidInputError, match="it has expired, or it had rows"):
            await store.at(first.snapshot_id)


class OvertakenTail(UnlockedTail):
    """A tail that does something else between the fence of an erasure and its deletion of files."""

    meanwhile: Callable[[], object] = staticmethod(lambda: None)

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
