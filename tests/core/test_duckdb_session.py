"""DuckDB sessions: their memory, and their end when nobody waits for them any more."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from threading import Event

import duckdb
import pytest

from headwater import FeatureStore
from headwater.core import duckdb_session, session_memory
from headwater.core.duckdb_session import Session, session
from headwater.core.interruptible import in_thread
from headwater.errors import InvalidInputError
from headwater.settings.schema import Settings

ENDLESS = "SELECT sum(a.range * b.range % 7) FROM range(10_000_000) AS a, range(1_000_000) AS b"
LARGE = "SELECT length(list(repeat('x', 1_000_000) || range)) FROM range(200)"


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_memory, "_bytes", 100_000_000)


def test_a_session_that_needs_more_memory_than_it_may_use_names_the_setting(
    tmp_path: Path, little_memory: None
) -> None:
    with (
        pytest.raises(InvalidInputError, match=r"more than 100000000 bytes .* raise offline\.max_"),
        session(tmp_path) as duck,
    ):
        duck.run(LARGE).fetchall()


def test_what_a_session_writes_to_disk_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_memory, "_bytes", 30_000_000)
    monkeypatch.setattr(duckdb_session, "_DISK_BYTES", 0)
    with (
        pytest.raises(InvalidInputError, match=r"30000000 bytes .* raise offline\.max_session"),
        session(tmp_path) as duck,
    ):
        duck.run("CREATE TABLE t AS SELECT random() AS a, random() AS b FROM range(3_000_000)")


def test_a_file_has_no_dictionary_larger_than_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with session(tmp_path) as duck:
        for largest, has_dictionary in ((10_000, True), (1_000, False)):
            monkeypatch.setattr(duckdb_session, "_LARGEST_DICTIONARY", largest)
            file = tmp_path / "texts.parquet"
            duck.write("SELECT repeat('x', 500) || (range % 9) AS t FROM range(1_000)", file)
            found = duck.run(f"SELECT encodings FROM parquet_metadata('{file}')").fetchall()
            assert ("DICTIONARY" in found[0][0]) is has_dictionary


class Query:
    """A query without an end, whose session is opened in its thread or was opened before."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.has_begun, self.was_interrupted = Event(), Event()

    def run_in_its_own_session(self) -> None:
        with session(self._folder) as duck:
            self.run_in(duck)

    def run_in(self, duck: Session) -> None:
        self.has_begun.set()
        with pytest.raises(duckdb.InterruptException):
            duck.run(ENDLESS).fetchall()
        self.was_interrupted.set()


async def _cancel(task: asyncio.Task[None], query: Query) -> None:
    await asyncio.to_thread(query.has_begun.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert query.was_interrupted.is_set()


async def test_a_query_ends_when_its_caller_is_cancelled(tmp_path: Path) -> None:
    query = Query(tmp_path)
    await _cancel(asyncio.create_task(in_thread(query.run_in_its_own_session)), query)
    assert not os.listdir(tmp_path)


async def test_a_query_of_an_open_session_ends_when_its_caller_is_cancelled(tmp_path: Path) -> None:
    query = Query(tmp_path)
    with session(tmp_path) as duck:
        await _cancel(asyncio.create_task(duck.in_thread(query.run_in, duck)), query)
        with pytest.raises(duckdb.InterruptException):
            duck.run("SELECT 1")


async def test_work_in_a_thread_returns_its_result_and_raises_its_error() -> None:
    def fail() -> None:
        raise ValueError("no")

    assert await in_thread(divmod, 7, 2) == (3, 1)
    with pytest.raises(ValueError, match="no"):
        await in_thread(fail)


async def test_the_memory_of_every_session_is_that_of_the_setting(tmp_path: Path) -> None:
    limited = {"max_session_bytes": 128 << 20}
    settings = Settings().replace(home=str(tmp_path / "home"), offline=limited)
    async with FeatureStore(settings=settings):
        with session(tmp_path) as duck:
            limit = duck.run("SELECT current_setting('memory_limit')").fetchall()
    assert limit == [("128.0 MiB",)]
