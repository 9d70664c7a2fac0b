"""Documents of batches, from the commit in Redis to the index in Postgres."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest

from conformance.documents import SPEC, document
from conformance.suite import Opened, outcome
from headwater import FeatureStore
from headwater.backends.connect import connect
from headwater.backends.redis import streams
from headwater.backends.redis.streams import documents_json
from headwater.core.clock import SystemClock
from headwater.declarations.runtime import runtime_of
from headwater.ports import DocumentWrite
from headwater.settings.schema import Settings
from tests.backends.redis import indexing
from tests.engine.support import backlog, until
from tests.processes.fleet import Fleet


@pytest.fixture
async def opened(settings: Settings) -> AsyncIterator[Opened]:
    backends = await connect(settings, SystemClock())
    yield Opened(**msgspec.structs.asdict(backends))
    await backends.lifecycle.close()


async def commit(opened: Opened, writes: list[DocumentWrite]) -> None:
    leases, batch = await opened.take_clicks(1)
    await opened.bus.commit(msgspec.structs.replace(outcome(batch), documents=writes))
    await opened.leases.release(leases)


async def test_documents_of_several_megabytes_arrive(opened: Opened) -> None:
    await opened.vectors.create("docs", SPEC)
    large = [document(f"d{number}", f"{number} " + "x" * 3_000_000) for number in range(3)]
    await commit(opened, large)
    for each in large:
        stored = (await opened.vectors.documents("docs", [each.document])).get(each.document)
        assert stored is not None
        assert stored.text == each.text


def test_documents_of_a_batch_are_split_only_if_they_are_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writes = [document(f"d{number}", "x" * 100) for number in range(10)]
    [array] = documents_json(writes)
    assert msgspec.json.decode(array, type=list[DocumentWrite]) == writes
    monkeypatch.setattr(streams, "_MOST_DOCUMENT_BYTES", len(array) // 3)
    arrays = documents_json(writes)
    assert len(arrays) > 2
    decoded = [msgspec.json.decode(each, type=list[DocumentWrite]) for each in arrays]
    assert [write for each in decoded for write in each] == writes
    assert documents_json([]) == []


@pytest.fixture
def fleet(settings: Settings, tmp_path: Path) -> Fleet:
    variables: dict[str, Any] = {
        "partitions": settings.partitions,
        "redis_url": settings.redis.url,
        "redis_prefix": settings.redis.prefix,
        "postgres_url": settings.postgres.url,
        "postgres_schema": settings.postgres.schema,
        "worker_lease_ttl": 2,
    }
    return Fleet(tmp_path, module="tests.backends.redis.indexing", **variables)


@pytest.fixture
async def shared(settings: Settings) -> AsyncIterator[FeatureStore]:
    """The store of the processes, opened in this process."""
    before = indexing.store.settings
    await runtime_of(indexing.store).rebind(settings, SystemClock())
    yield indexing.store
    await runtime_of(indexing.store).rebind(before, SystemClock())


@pytest.mark.chaos
@pytest.mark.parametrize("settings", ["server"], indirect=True)
async def test_documents_arrive_once_and_in_order_if_processes_that_store_them_are_killed(
    opened: Opened, fleet: Fleet, settings: Settings
) -> None:
    await opened.vectors.create("docs", SPEC)
    database = await asyncpg.connect(settings.postgres.url)
    stored_version = (
        f"SELECT version FROM {settings.postgres.schema}._documents WHERE document = 'a'"
    )
    number = 0
    for _ in range(2):
        with fleet.start("settle") as process:
            before = number
            for _ in range(2):
                for _ in range(5):
                    number += 1
                    writes = [document("a", f"text {number}"), document(f"b{number}", "b")]
                    await commit(opened, writes)

                # Read without the port, which would store them itself.
                async def is_stored(after: int = before) -> bool:
                    return (await database.fetchval(stored_version) or 0) > after

                await until(is_stored)
            process.kill()
    await database.close()
    stored = (await opened.vectors.documents("docs", ["a"])).get("a")
    assert stored is not None
    assert (stored.text, stored.version) == (f"text {number}", number)
    [generation] = await opened.vectors.generations("docs")
    assert (generation.documents, generation.chunks) == (number + 1, number + 1)


@pytest.mark.chaos
@pytest.mark.parametrize("settings", ["server"], indirect=True)
async def test_a_document_of_a_worker_that_is_killed_is_indexed_once(
    shared: FeatureStore, fleet: Fleet, tmp_path: Path
) -> None:
    await shared.publish("edit", "p1", {"text": "first"})
    await shared.publish("edit", "p1", {"text": "fatal", "fatal": str(tmp_path / "fatal")})
    await shared.publish("edit", "p1", {"text": "last"})
    with fleet.start() as doomed:
        assert await doomed.ended() < 0
    with fleet.start():
        await until(lambda: _is_done(shared))
    [chunk] = await shared.search("docs", "last edit")
    assert chunk.text == "last edit 3"
    stored = (
        await (await runtime_of(shared).open()).backends.vectors.documents("docs", ["p1"])
    ).get("p1")
    assert stored is not None
    assert (stored.text, stored.version) == ("last edit 3", 3)


async def _is_done(store: FeatureStore) -> bool:
    return await backlog(store) == 0
