"""Indexes of documents in SQLite: whole after a kill, quick to open, in order without a clock."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from conformance.documents import (
    OTHER_SPEC,
    SPEC,
    changed_at,
    document,
    found,
    near,
    removal,
    stored_document,
    texts,
    words,
)
from conformance.suite import Opened
from headwater.backends.connect import connect
from headwater.backends.sqlite.environment import SqliteEnvironment
from headwater.backends.sqlite.vectors import index as index_module
from headwater.backends.sqlite.vectors import search
from headwater.core.clock import SystemClock
from headwater.ports import Compare, VectorIndex
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.backends.sqlite.reindexing import NAMES, version
from tests.backends.sqlite.vector_home import opened, random_documents
from tests.engine.support import until
from tests.processes.fleet import ROOT

KILLS = 3

WITHOUT_NUMPY = """
import asyncio, sys
from headwater import FeatureStore
from headwater.declarations.runtime import runtime_of
from conformance.documents import SPEC, document

async def main() -> None:
    async with FeatureStore(home={home!r}) as store:
        vectors = (await runtime_of(store).open()).backends.vectors
        await vectors.create("docs", SPEC)
        await vectors.write([document("a", "one")])
        assert "a" in await vectors.documents("docs", ["a"])
        assert await vectors.version("docs") is not None

asyncio.run(main())
print("numpy" in sys.modules)
"""


@contextmanager
def reindexing(home: Path, way: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the program that indexes, and kill it at the end of the block."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.backends.sqlite.reindexing", str(home), way]
    process = subprocess.Popen(command, cwd=ROOT, env=variables)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def number_of(vectors: VectorIndex, name: str = "a") -> int:
    """Return the number in the current version of a document."""
    stored = await stored_document(vectors, name)
    return 0 if stored is None else int(stored.metadata["number"])


async def check_whole(vectors: VectorIndex) -> int:
    """Assert that all documents are of one version, in every form in which they are stored."""
    number = await number_of(vectors)
    written = [version(name, number) for name in NAMES]
    expected = sorted(chunk.id for write in written for chunk in write.chunks)
    for write in written:
        stored = await stored_document(vectors, write.document)
        assert stored is not None
        assert (stored.text, stored.metadata) == (write.text, write.metadata)
    nearest = (await vectors.nearest(near())).hits
    matching = (await vectors.matching(words("first", "last", str(number)))).hits
    assert sorted(hit.id for hit in nearest) == expected
    assert sorted(hit.id for hit in matching) == expected
    assert {hit.metadata["number"] for hit in nearest} == {number}
    (generation,) = await vectors.generations("docs")
    assert (generation.documents, generation.chunks) == (len(NAMES), len(expected))
    return number


@pytest.mark.chaos
@pytest.mark.parametrize("way", ["direct", "handler"])
async def test_a_kill_while_documents_are_indexed_leaves_the_old_or_the_new_version(
    home: Path, way: str
) -> None:
    settings = Settings().replace(home=home)
    store = Opened(**msgspec.structs.asdict(await connect(settings, SystemClock())))
    await store.vectors.create("docs", SPEC)
    rng = random.Random(3)
    last = 0
    for _ in range(KILLS):
        wanted = last + rng.randrange(2, 20)
        with reindexing(home, way) as process:

            async def advanced(wanted: int = wanted) -> bool:
                assert process.poll() is None
                return await number_of(store.vectors) >= wanted

            await until(advanced)
        last = await check_whole(store.vectors)
        assert last >= wanted
        if way == "handler":
            # The value, the documents and the position of the batch are one commit.
            assert await store.value_online() == last
    await store.lifecycle.close()


async def test_a_search_of_another_process_sees_a_write_at_once(home: Path) -> None:
    async with opened(home) as store:
        with reindexing(home, "direct"):
            seen = [0]

            async def advanced() -> bool:
                before = await number_of(store.vectors)
                hits = (await store.vectors.nearest(near())).hits
                numbers = {hit.metadata["number"] for hit in hits}
                assert len(numbers) <= 1
                seen.append(max(numbers, default=0))
                assert seen[-1] >= max(before, seen[-2])
                return before > 10

            await until(advanced)


def test_a_store_is_opened_and_written_without_numpy(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_NUMPY.format(home=str(tmp_path))],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert result.stdout == "False\n", result.stderr


async def test_times_of_changes_increase_while_the_clock_stands_still_or_goes_back(
    home: Path,
) -> None:
    clock = ManualClock(datetime(2026, 1, 2, tzinfo=UTC))
    moments = []
    async with opened(home, clock) as store:
        vectors = store.vectors
        for number in range(3):
            await vectors.write([document("a", f"text {number}")])
            moments.append(await changed_at(vectors))
        await vectors.create("docs", OTHER_SPEC)
        await vectors.write([document("a", "text 2", generation=2)])
        await vectors.activate("docs", 2)
        moments.append(await changed_at(vectors))
    behind = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    async with opened(home, behind) as store:
        await store.vectors.write([document("a", "text 3", generation=2)])
        moments.append(await changed_at(store.vectors))
        await store.vectors.drop("docs")
        await store.vectors.create("docs", SPEC)
        moments.append(await changed_at(store.vectors))
    assert moments == sorted(set(moments))


async def test_prune_and_drop_leave_nothing_behind(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "PORTION", 7)
    async with opened(home) as store:
        vectors = store.vectors
        await vectors.create("more", SPEC)
        await vectors.write([document("a", "one", metadata={"n": 0}, index="more")])
        for word in ("one", "two", "three"):
            await vectors.write(random_documents(1, 30, word=word))
        await vectors.write([document("d0", "x", metadata={"n": -1}), removal("d1")])
        assert await vectors.prune("docs", await changed_at(vectors) + 1) == 30 + 30 + 2
        assert rows(store, "documents", "document_metadata", "metadata_values") == [30, 30, 30]
        assert rows(store, "chunks", "chunk_contents", "chunk_embeddings") == [30, 30, 30]
        await vectors.create("docs", OTHER_SPEC)
        await vectors.write([document("d0", "x", metadata={"n": -1}, generation=2)])
        assert await vectors.drop("docs") == 29
        assert rows(store, "chunks", "chunk_contents", "chunk_embeddings") == [1, 1, 1]
        assert rows(store, "documents", "document_metadata", "metadata_values") == [1, 1, 1]
        assert rows(store, "generations", "outdated_documents") == [1, 0]
        ((tokens,),) = store.home.read("SELECT count(*) FROM chunk_term_positions")
        assert tokens == 1
        assert set(await found(vectors, index="more")) == {"one"}


def rows(store: SqliteEnvironment, *tables: str) -> list[int]:
    """Return the numbers of rows of tables."""
    return [store.home.read(f"SELECT count(*) FROM {table}")[0][0] for table in tables]


async def test_a_drop_that_was_interrupted_is_completed_by_the_next_prune(home: Path) -> None:
    async with opened(home) as store:
        await store.vectors.write(random_documents(1, 5))
        with closing(sqlite3.connect(home / "headwater.db")) as database:
            index_module.drop_index(database, "docs", 0)
            database.commit()
        await store.vectors.create("docs", SPEC)
        await store.vectors.prune("docs", 0)
        assert rows(store, "documents", "chunks", "document_metadata") == [0, 0, 0]


async def test_large_searches_run_in_a_thread(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_TINY_BYTES", 0)
    monkeypatch.setattr(search, "_SMALL_BYTES", 0)
    async with opened(home) as store:
        for number in range(5):
            await store.vectors.write([document("a", f"text {number}"), document("b", "text")])
            nearest, matching = await asyncio.gather(
                store.vectors.nearest(near()), store.vectors.matching(words("text"))
            )
            assert texts(nearest) == [f"text {number}", "text"]
            assert sorted(texts(matching)) == ["text", f"text {number}"]


@pytest.mark.parametrize(
    "condition",
    [
        Compare("n", "eq", 7),
        Compare("n", "in", [7, 8]),
        Compare("n", "gt", 7),
        Compare("n", "in", [7, "a", None]),
    ],
)
async def test_filters_are_looked_up_in_an_index(home: Path, condition: Compare) -> None:
    plans: list[str] = []
    async with opened(home) as store:
        await store.vectors.write(random_documents(1, 20))
        reader = store.home.reader
        reader.set_trace_callback(plans.append)
        await store.vectors.nearest(near(filters=condition))
        reader.set_trace_callback(None)
        statements = [each for each in plans if "FROM metadata_values" in each]
        assert statements
        for statement in statements:
            plan = " ".join(row[3] for row in store.home.read(f"EXPLAIN QUERY PLAN {statement}"))
            assert "SCAN" not in plan
            assert "kind=? AND value" in plan
