"""Documents that batches committed: each arrives once, in order, and blocks nothing."""

from __future__ import annotations

import asyncio
from unittest import mock

import pytest

from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.environment import PostgresEnvironment
from headwater.backends.postgres.outbox_consumer import LIMITS
from headwater.backends.postgres.vectors.chunk_tables import ChunkTable
from headwater.backends.postgres.vectors.search import nearest
from headwater.core.clock import SystemClock
from headwater.errors import BackendError
from headwater.ports import DocumentWrite, Hits, VectorQuery
from tests.backends.postgres.documents import embedding, near, spec, write
from tests.backends.postgres.outbox import MemoryOutbox, value_row
from tests.backends.postgres.story import Open, until, values

X = embedding(1, 0, 0)


class StoppedError(BackendError):
    """Raised by a test where a process might die."""


async def stop() -> None:
    raise StoppedError("stopped")


async def texts(past: PostgresEnvironment, **query: object) -> set[str]:
    found = await past.vectors.nearest(near(X, limit=100, **query))
    return {hit.text for hit in found.hits}


async def changed_at(past: PostgresEnvironment) -> int:
    version = await past.vectors.version("docs")
    assert version is not None
    return version.changed_at


async def test_documents_arrive_in_the_order_of_their_commits(
    past: PostgresEnvironment, outbox: MemoryOutbox
) -> None:
    await past.vectors.create("docs", spec())
    for number in range(30):
        outbox.put_documents(write("a", f"text {number}"), write(f"b{number}", "other"))
    assert "text 29" in await texts(past)
    stored = (await past.vectors.documents("docs", ["a"])).get("a")
    assert stored is not None
    assert (stored.text, stored.version) == ("text 29", 30)
    assert len(await texts(past)) == 2
    assert not outbox.pending()


async def test_documents_that_are_stored_but_not_settled_are_not_stored_again(
    opening: Open, outbox: MemoryOutbox
) -> None:
    past = await opening()
    await past.vectors.create("docs", spec())
    outbox.put_documents(write("a", "first"))
    outbox.put(value_row(1))
    outbox.on_settle = stop
    with pytest.raises(StoppedError):
        await past.vectors.version("docs")
    outbox.on_settle = None
    other = await opening()
    # Not from the outbox, so it would be replaced by a repetition.
    outbox.put_documents(write("a", "second"))
    assert await texts(other) == {"second"}
    stored = (await other.vectors.documents("docs", ["a"])).get("a")
    assert stored is not None
    assert stored.version == 2
    assert await values(other) == [1]


async def test_a_search_that_began_before_a_commit_was_copied_is_repeated(
    opening: Open, outbox: MemoryOutbox
) -> None:
    """It runs while the outbox is asked, which has nothing left if another process has copied."""
    past, other = await opening(), await opening()
    await past.vectors.create("docs", spec())
    await past.vectors.write([write("a", "first")])
    for _ in range(3):
        assert await texts(past) == {"first"}
    searched = asyncio.Event()

    async def copy_after_the_search() -> None:
        outbox.on_mark = None
        await searched.wait()
        outbox.put_documents(write("a", "second"))
        assert await texts(other) == {"second"}
        assert not outbox.pending()

    async def search(connection: Connection, table: ChunkTable, query: VectorQuery) -> Hits:
        hits = await nearest(connection, table, query)
        searched.set()
        return hits

    outbox.on_mark = copy_after_the_search
    with mock.patch("headwater.backends.postgres.vectors.index.nearest", search):
        assert await texts(past) == {"second"}


async def test_a_direct_write_comes_after_the_documents_committed_before_it(
    past: PostgresEnvironment, outbox: MemoryOutbox
) -> None:
    await past.vectors.create("docs", spec())
    outbox.put_documents(write("a", "committed"))
    await past.vectors.write([write("a", "direct")])
    assert await texts(past) == {"direct"}


async def test_a_switch_of_generations_counts_the_documents_committed_before_it(
    past: PostgresEnvironment, outbox: MemoryOutbox
) -> None:
    await past.vectors.create("docs", spec())
    await past.vectors.create("docs", spec(embedder="test/other"))
    outbox.put_documents(write("a", "committed"))
    assert await past.vectors.activate("docs", 2) == 1


async def test_documents_and_values_of_a_commit_are_stored_in_one_transaction(
    past: PostgresEnvironment, outbox: MemoryOutbox, database: Connection
) -> None:
    """Rows of history are not seen while the documents wait for another write of the index."""
    await past.vectors.create("docs", spec())
    outbox.put(value_row(1))
    outbox.put_documents(write("a", "text"))

    async def is_waiting() -> bool:
        return bool(
            await database.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                " AND application_name = 'headwater/' || current_schema()"
            )
        )

    async with database.transaction():
        await database.execute("SELECT FROM _indexes FOR UPDATE")
        task = asyncio.create_task(past.vectors.version("docs"))
        await until(is_waiting)
        assert await database.fetchval("SELECT count(*) FROM _history") == 0
    await task
    assert await database.fetchval("SELECT count(*) FROM _documents") == 1
    assert await database.fetchval("SELECT count(*) FROM _history") == 1


INVALID = {
    "an index that does not exist": write("a", "one", index="none"),
    "a generation that does not exist": write("a", "one", generation=7),
    "embeddings of another size": write("a", "one", vectors=[embedding(1, 0)]),
    "a version that is not the current one": write("a", "one", version=3),
    "a removal of an unknown document": write("a"),
}


@pytest.mark.parametrize("invalid", INVALID.values(), ids=INVALID)
async def test_a_write_that_cannot_be_stored_blocks_nothing(
    past: PostgresEnvironment, outbox: MemoryOutbox, invalid: DocumentWrite
) -> None:
    await past.vectors.create("docs", spec())
    outbox.put_documents(write("before", "before"), invalid, write("after", "after"))
    outbox.put(value_row(1))
    assert await texts(past) == {"before", "after"}
    assert await values(past) == [1]
    assert not outbox.pending()


async def test_a_document_whose_chunks_cannot_be_stored_is_outdated(
    past: PostgresEnvironment, outbox: MemoryOutbox, capsys: pytest.CaptureFixture[str]
) -> None:
    await past.vectors.create("docs", spec())
    outbox.put_documents(write("a", "one", vectors=[embedding(1, 0)]))
    [outdated] = await past.vectors.outdated("docs", 1, after="", limit=10)
    assert (outdated.document, outdated.text, outdated.version) == ("a", "one", 1)
    assert "document could not be indexed" in capsys.readouterr().err
    await past.vectors.write([write("a", "one", version=1)])
    assert await texts(past) == {"one"}


async def test_a_table_of_chunks_that_is_gone_blocks_nothing(
    past: PostgresEnvironment, outbox: MemoryOutbox, database: Connection
) -> None:
    await past.vectors.create("docs", spec())
    await database.execute("DROP TABLE _chunks_1")
    outbox.put_documents(write("a", "one"))
    outbox.put(value_row(1))
    assert await values(past) == [1]
    stored = (await past.vectors.documents("docs", ["a"])).get("a")
    assert stored is not None
    assert stored.text == "one"


async def test_consumers_of_many_partitions_apply_every_document(
    opening: Open, outbox: MemoryOutbox
) -> None:
    processes = [await opening() for _ in range(3)]
    await processes[0].vectors.create("docs", spec())
    await processes[0].vectors.create("more", spec())
    for number in range(60):
        names = ("docs", "more") if number % 2 else ("more", "docs")
        writes = [write(f"d{number % 20}", f"text {number}", index=name) for name in names]
        outbox.put_documents(*writes, partition=number % 4)
    await asyncio.gather(*(each.vectors.version("docs") for each in processes))
    for index in ("docs", "more"):
        for number in range(20):
            stored = (await processes[1].vectors.documents(index, [f"d{number}"])).get(f"d{number}")
            assert stored is not None
            assert (stored.text, stored.version) == (f"text {number + 40}", 3)
        [generation] = await processes[2].vectors.generations(index)
        assert (generation.documents, generation.chunks, generation.outdated) == (20, 20, 0)


async def test_a_document_is_of_the_time_of_its_commit_however_long_it_waited(
    past: PostgresEnvironment, outbox: MemoryOutbox
) -> None:
    await past.vectors.create("docs", spec())
    start = await changed_at(past) + 10
    # Several batches of rows, more in some partitions than in others.
    outbox.least = 3
    commits = [(number, number % 3 if number < 40 else 3) for number in range(60)]
    for number, partition in commits:
        outbox.put(value_row(number, number), partition=partition)
        at = start + 10 * number
        outbox.put_documents(
            write(f"d{number}", str(number)), write("a", f"a{number}"), partition=partition, at=at
        )
    with mock.patch.dict(LIMITS, {"history": 1, "events": 1}):
        await past.vectors.version("docs")
    for number, _ in commits:
        expected = {*map(str, range(number + 1)), f"a{number}"}
        assert await texts(past, as_of=start + 10 * number) == expected
        assert await texts(past, as_of=start + 10 * number + 9) == expected


async def test_a_document_that_arrives_after_a_later_change_does_not_change_what_was_seen(
    past: PostgresEnvironment, outbox: MemoryOutbox
) -> None:
    await past.vectors.create("docs", spec())
    await past.vectors.write([write("b", "direct")])
    seen = await changed_at(past)
    outbox.put_documents(write("a", "committed before"), at=seen - 10)
    assert await texts(past) == {"direct", "committed before"}
    assert await changed_at(past) == seen + 1
    assert await texts(past, as_of=seen) == {"direct"}


async def test_the_clock_of_commits_may_be_ahead(
    past: PostgresEnvironment, outbox: MemoryOutbox
) -> None:
    await past.vectors.create("docs", spec())
    outbox.put_documents(write("a", "text"), at=SystemClock().micros() + 3_600_000_000)
    assert await texts(past) == {"text"}
    assert await changed_at(past) <= SystemClock().micros()
