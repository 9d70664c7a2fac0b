"""Large documents that a request leaves to the workers, who embed them in the background."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.declarations.runtime import runtime_of
from headwater.engine.worker import periodic_work
from headwater.errors import TooManyChunksError
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.engine.support import records, until
from tests.retrieval.support import PARCELS, RETURNS, Paused, Words, declare_docs, documents

pytestmark = pytest.mark.both_environments

PARAGRAPHS = [f"Paragraph {number} of the handbook speaks of parcels." for number in range(12)]
HANDBOOK = "\n\n".join(PARAGRAPHS)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Return settings with which the handbook is a large document."""
    return settings.replace(indexes={"background_chunks": 3, "max_request_chunks": 50})


@pytest.fixture
def words(store: FeatureStore) -> Words:
    """Return the embedder of the index, which has small chunks."""
    return declare_docs(store, chunk_tokens=16, overlap=0)


async def status(store: FeatureStore, document: str = "handbook") -> str | None:
    stored = await store.indexes.get_document("docs", document)
    return None if stored is None else stored.status


async def maintain(store: FeatureStore) -> None:
    engine = await runtime_of(store).open()
    await engine.reindexer.maintain(engine.registry.index("docs"))


async def test_a_large_document_is_stored_at_once_and_found_when_a_worker_has_embedded_it(
    store: FeatureStore, words: Words
) -> None:
    await store.index("docs", "handbook", HANDBOOK, {"lang": "en"}, wait=False)
    assert not words.texts
    stored = await store.indexes.get_document("docs", "handbook")
    assert stored is not None
    assert (stored.text, stored.version, stored.status) == (HANDBOOK, 1, "indexing")
    assert await store.search("docs", "parcels") == []
    (index,) = await store.indexes.list()
    assert (index.documents, index.outdated) == (0, 1)
    await maintain(store)
    assert await status(store) == "ready"
    assert documents(await store.search("docs", "parcels", top_k=1)) == ["handbook"]
    (index,) = await store.indexes.list()
    assert (index.documents, index.outdated) == (1, 0)


async def test_until_then_searches_find_the_earlier_version(
    store: FeatureStore, words: Words
) -> None:
    await store.index("docs", "handbook", PARCELS, wait=False)
    assert await status(store) == "ready"
    await store.index("docs", "handbook", HANDBOOK, wait=False)
    assert [chunk.text for chunk in await store.search("docs", "parcels")] == [PARCELS]
    await maintain(store)
    assert PARCELS not in [chunk.text for chunk in await store.search("docs", "parcels")]


async def test_an_edit_of_a_large_document_is_found_at_once(
    store: FeatureStore, words: Words
) -> None:
    await store.index("docs", "handbook", HANDBOOK)
    await store.index("docs", "handbook", f"{HANDBOOK}\n\n{RETURNS}", wait=False)
    assert await status(store) == "ready"
    assert RETURNS in [chunk.text for chunk in await store.search("docs", "returns", top_k=1)]


async def test_a_document_that_is_removed_while_it_is_embedded_stays_removed(
    store: FeatureStore,
) -> None:
    paused = Paused()
    declare_docs(store, paused, chunk_tokens=16, overlap=0)
    await store.index("docs", "handbook", HANDBOOK, wait=False)
    repairing = asyncio.create_task(maintain(store))
    await paused.is_called.wait()
    await store.unindex("docs", "handbook")
    paused.may_go_on.set()
    await repairing
    assert await status(store) is None
    assert await store.search("docs", "parcels") == []
    (index,) = await store.indexes.list()
    assert (index.documents, index.chunks, index.outdated) == (0, 0, 0)


async def test_a_document_whose_worker_died_is_embedded_by_the_next_one(
    store: FeatureStore, settings: Settings, clock: ManualClock
) -> None:
    paused = Paused()
    declare_docs(store, paused, chunk_tokens=16, overlap=0)
    await store.index("docs", "handbook", HANDBOOK, wait=False)
    repairing = asyncio.create_task(maintain(store))
    await paused.is_called.wait()
    repairing.cancel()
    await asyncio.wait([repairing])
    async with FeatureStore(settings=settings, clock=clock) as other:
        paused.may_go_on.set()
        declare_docs(other, paused, chunk_tokens=16, overlap=0)
        assert await status(other) == "indexing"
        await maintain(other)
        assert await status(other) == "ready"


class Choosy(Words):
    """An embedder that never embeds a text with the word poison."""

    refused = 0

    async def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        if any("poison" in text for text in texts):
            self.refused += 1
            raise ValueError("this text cannot be embedded")
        return await super().__call__(texts)


async def test_a_document_that_cannot_be_embedded_holds_up_no_other(
    store: FeatureStore, clock: ManualClock, capfd: pytest.CaptureFixture[str]
) -> None:
    choosy = Choosy()
    declare_docs(store, choosy, chunk_tokens=16, overlap=0)
    poisoned = HANDBOOK.replace("handbook", "poison")
    for name, text in {"a": HANDBOOK, "b": poisoned, "c": HANDBOOK, "d": HANDBOOK}.items():
        await store.index("docs", name, f"{text}\n\n{name}", wait=False)
    for _ in range(8):
        await maintain(store)
    assert [await status(store, name) for name in "abcd"] == ["ready", "indexing", "ready", "ready"]
    problems = records(capfd.readouterr().err, "could not repair an index; retrying")
    assert [problem["document"] for problem in problems] == ["b"]
    refused = choosy.refused
    await maintain(store)
    assert choosy.refused == refused
    clock.advance("1m")
    await maintain(store)
    assert choosy.refused == refused + 1
    await store.unindex("docs", "b")
    (index,) = await store.indexes.list()
    assert index.outdated == 0


async def test_a_handler_may_leave_a_large_document_to_the_background(
    store: FeatureStore, words: Words
) -> None:
    @entity(store)
    class Page:
        page_id: str

    @feature(entity=Page, trigger="edited")
    async def edited(page_id: str, event: ServiceEvent) -> str:
        await store.index("docs", page_id, event.payload["text"], wait=False)
        return "stored"

    await store.publish("edited", "handbook", {"text": HANDBOOK})
    await store.drain()
    assert not words.texts
    assert await status(store) == "indexing"
    await maintain(store)
    assert documents(await store.search("docs", "parcels", top_k=1)) == ["handbook"]


async def test_more_chunks_than_a_request_may_have_are_refused_with_the_remedy(
    store: FeatureStore, words: Words
) -> None:
    text = "\n\n".join(f"{paragraph} Again: {paragraph}" for paragraph in PARAGRAPHS * 5)
    with pytest.raises(TooManyChunksError, match=r"maximum of 50; .* or raise indexes\.max_reque"):
        await store.index("docs", "handbook", text, wait=False)
    assert await status(store) is None
    await store.index("docs", "handbook", text)
    assert await status(store) == "ready"


class Held:
    """The partitions that a worker holds; it records which ones it was asked for."""

    def __init__(self, *held: int) -> None:
        self.held = held
        self.asked: list[object] = []

    def __contains__(self, partition: object) -> bool:
        self.asked.append(partition)
        return partition in self.held


@pytest.fixture
async def maintaining(store: FeatureStore, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Held]:
    """Maintain the indexes of a worker without partitions."""
    monkeypatch.setattr(periodic_work, "_MAINTENANCE_SECONDS", 0.01)
    held = Held()
    engine = await runtime_of(store).open()
    running = asyncio.create_task(periodic_work.maintain_indexes(engine, held))
    yield held
    running.cancel()
    await asyncio.wait([running])


async def test_only_the_worker_that_holds_the_partition_of_an_index_embeds_its_documents(
    store: FeatureStore, words: Words, maintaining: Held
) -> None:
    await store.index("docs", "handbook", HANDBOOK, wait=False)
    asked = len(maintaining.asked)
    await until(lambda: len(maintaining.asked) > asked + 1)
    assert not words.texts
    maintaining.held = (0, 1, 2, 3)

    async def is_ready() -> bool:
        return await status(store) == "ready"

    await until(is_ready)
