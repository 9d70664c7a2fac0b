"""Building an index again next to its present contents, repairing it, and forgetting its past."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from headwater import Document, FeatureStore, Index, ServiceEvent, Worker, entity, feature
from headwater.declarations.retrievers import SearchOptions
from headwater.declarations.runtime import runtime_of
from headwater.engine.worker import periodic_work
from headwater.errors import EmbeddingError, InvalidInputError, UnknownNameError
from headwater.model.indexes import Generation
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.engine.support import records, until
from tests.retrieval.support import (
    GIRAFFES,
    PARCELS,
    RETURNS,
    Paused,
    Words,
    declare_docs,
    documents,
    index_all,
    texts,
)

pytestmark = pytest.mark.both_environments


@pytest.fixture
async def lexical(settings: Settings, clock: ManualClock) -> AsyncIterator[FeatureStore]:
    """Yield a store whose index is declared with the lexical embedder."""
    async with FeatureStore(settings=settings, clock=clock) as store:
        Index(store, "docs", embedder="lexical")
        yield store


@asynccontextmanager
async def redeclared(
    settings: Settings, clock: ManualClock, words: Words
) -> AsyncIterator[FeatureStore]:
    """Yield another store with the same contents, whose index has another embedder."""
    async with FeatureStore(settings=settings, clock=clock) as store:
        declare_docs(store, words)
        yield store


async def generations(store: FeatureStore) -> list[Generation]:
    return await (await runtime_of(store).open()).backends.vectors.generations("docs")


async def maintain(store: FeatureStore) -> None:
    engine = await runtime_of(store).open()
    await engine.reindexer.maintain(engine.registry.index("docs"))


async def test_an_index_is_built_again_with_another_embedder(
    lexical: FeatureStore, settings: Settings, clock: ManualClock
) -> None:
    await index_all(lexical)
    words, progress = Words(), []
    async with redeclared(settings, clock, words) as store:
        done = await store.indexes.reindex("docs", progress=lambda *each: progress.append(each))
        assert (done, progress) == (3, [(3, 3)])
        assert sorted(words.texts) == sorted([PARCELS, RETURNS, GIRAFFES])
        (status,) = await store.indexes.list()
        assert status.spec is not None
        assert (status.spec.embedder, status.needs_reindex) == ("function/Words", False)
        assert (status.documents, status.chunks) == (3, 3)
        (chunk,) = await store.search("docs", "parcels arrive", top_k=1)
        assert (chunk.document, chunk.version) == ("parcels", 1)
        assert words.texts[-1] == "parcels arrive"
        assert await store.indexes.reindex("docs") == 0
        old, new = await generations(store)
        assert (old.state, new.state) == ("retired", "active")
        engine = await runtime_of(store).open()
        found = await engine.searcher.run(
            engine.registry.index("docs"), "parcels", SearchOptions(top_k=1)
        )
        assert found.version == await engine.backends.vectors.version("docs")


async def test_a_search_of_the_past_does_not_recommend_another_rebuild(
    lexical: FeatureStore,
    settings: Settings,
    clock: ManualClock,
    capsys: pytest.CaptureFixture[str],
) -> None:
    await index_all(lexical)
    clock.advance("1h")
    async with redeclared(settings, clock, Words()) as store:
        await store.indexes.reindex("docs")
        (chunk,) = await store.search("docs", "giraffes", as_of="30m")
        assert chunk.document == "giraffes"
    assert (
        records(capsys.readouterr().err, "index was built in another way than it is declared") == []
    )


async def test_searches_and_writes_use_the_old_generation_until_the_new_one_is_complete(
    lexical: FeatureStore, settings: Settings, clock: ManualClock
) -> None:
    await index_all(lexical)
    paused = Paused()
    async with redeclared(settings, clock, paused) as store:
        reindexing = asyncio.create_task(store.indexes.reindex("docs"))
        await paused.is_called.wait()
        assert documents(await store.search("docs", "parcels", top_k=1)) == ["parcels"]
        (status,) = await store.indexes.list()
        assert (status.documents, status.building, status.needs_reindex) == (3, 0, True)
        # A version that is written meanwhile is not replaced by the one that the builder has read.
        await lexical.index("docs", "parcels", "Parcels arrive tomorrow.")
        await lexical.index("docs", "new", "A new page about parcels.")
        await lexical.unindex("docs", "giraffes")
        paused.may_go_on.set()
        assert await reindexing >= 3
        found = await store.search("docs", "parcels", top_k=10)
        assert {(chunk.document, chunk.text, chunk.version) for chunk in found} == {
            ("parcels", "Parcels arrive tomorrow.", 2),
            ("new", "A new page about parcels.", 1),
            ("returns", RETURNS, 1),
        }
        assert [each.state for each in await generations(store)] == ["retired", "active"]


async def test_a_rebuild_that_was_interrupted_is_continued(
    lexical: FeatureStore, settings: Settings, clock: ManualClock
) -> None:
    pages = [Document(f"page{number:03}", f"Page number {number}.") for number in range(150)]
    await lexical.indexes.load("docs", pages)
    words = Words()
    async with redeclared(settings, clock, words) as store:

        def stop(done: int, total: int) -> None:
            assert total == 150
            words.failures = [OSError("no connection")]

        with pytest.raises(EmbeddingError, match="no connection"):
            await store.indexes.reindex("docs", progress=stop)
        before = len(words.texts)
        assert 0 < before < 150
        assert documents(await store.search("docs", "page number 77", mode="text"))[0] == "page077"
    async with redeclared(settings, clock, words) as store:
        assert await store.indexes.reindex("docs") == 150 - before
        assert len(words.texts) == 150
        assert documents(await store.search("docs", "page number 77", top_k=1)) == ["page077"]


async def test_a_write_that_began_before_the_switch_is_found_after_it(
    settings: Settings, clock: ManualClock
) -> None:
    paused = Paused()
    async with redeclared(settings, clock, paused) as store:
        paused.may_go_on.set()
        await store.index("docs", "parcels", PARCELS)
        paused.may_go_on.clear()
        paused.is_called.clear()
        writing = asyncio.create_task(store.index("docs", "returns", RETURNS))
        await paused.is_called.wait()
        async with FeatureStore(settings=settings, clock=clock) as other:
            Index(other, "docs", embedder="lexical")
            assert await other.indexes.reindex("docs") == 1
            paused.may_go_on.set()
            await writing
            assert documents(await other.search("docs", "returns", top_k=1)) == ["returns"]
            (status,) = await other.indexes.list()
            assert (status.documents, status.outdated) == (2, 0)


async def test_a_process_that_has_searched_before_searches_the_new_generation(
    settings: Settings, clock: ManualClock
) -> None:
    words = Words()
    async with (
        redeclared(settings, clock, words) as store,
        FeatureStore(settings=settings, clock=clock) as other,
    ):
        Index(other, "docs", embedder="lexical")
        await store.index("docs", "parcels", PARCELS)
        assert texts(await store.search("docs", "parcels")) == [PARCELS]
        await other.indexes.reindex("docs")
        await other.index("docs", "parcels", RETURNS)
        for mode in ("vector", "text", "hybrid"):
            assert texts(await store.search("docs", "returns", mode=mode)) == [RETURNS]
        await other.indexes.drop("docs")
        assert await store.search("docs", "returns") == []
        await other.index("docs", "giraffes", GIRAFFES)
        assert texts(await store.search("docs", "giraffes")) == [GIRAFFES]


async def test_workers_repair_documents_that_a_handler_wrote_to_the_old_generation(
    settings: Settings, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(periodic_work, "_MAINTENANCE_SECONDS", 0.05)
    paused = Paused()
    async with redeclared(settings, clock, paused) as store:

        @entity(store)
        class Page:
            page_id: str

        @feature(entity=Page, trigger="edited")
        async def edited(page_id: str, event: ServiceEvent) -> str:
            await store.index("docs", page_id, event.payload["text"])
            return "indexed"

        await store.publish("edited", "page", {"text": PARCELS})
        worker = Worker(store)
        running = asyncio.create_task(worker.run())
        await paused.is_called.wait()
        async with FeatureStore(settings=settings, clock=clock) as other:
            Index(other, "docs", embedder="lexical")
            await other.indexes.reindex("docs")
            paused.may_go_on.set()

            async def is_found() -> bool:
                return texts(await other.search("docs", "parcels")) == [PARCELS]

            await until(is_found)
        worker.stop()
        await running


@pytest.mark.parametrize("private", [False, True])
async def test_an_index_that_cannot_be_repaired_is_logged_once(
    lexical: FeatureStore,
    settings: Settings,
    clock: ManualClock,
    capfd: pytest.CaptureFixture[str],
    *,
    private: bool,
) -> None:
    await lexical.index("docs", "parcels", PARCELS)
    words = Words()
    chosen = settings.replace(record={"include_content": not private})
    async with redeclared(chosen, clock, words) as store:
        engine = await runtime_of(store).open()
        definition = engine.registry.index("docs")
        (old,) = await generations(store)
        await store.indexes.reindex("docs")
        version = await engine.backends.vectors.version("docs")
        assert version is not None
        behind = version.__class__("docs", old.number, old.spec, 0)
        late = engine.indexer.checked("late", RETURNS, None)
        await engine.backends.vectors.write(
            await engine.indexer.prepare(definition, behind, [late], "test")
        )
        assert documents(await store.search("docs", "returns")) == ["parcels"]
        words.failures = [OSError("no connection"), OSError("no connection")]
        for _ in range(3):
            await maintain(store)
            clock.advance("1m")
        assert documents(await store.search("docs", "returns", top_k=1)) == ["late"]
    (problem,) = records(capfd.readouterr().err, "could not repair an index; retrying")
    assert problem["index"] == "docs"
    # The message of an embedder may contain the text that it could not embed.
    assert ("no connection" in problem["error"]) is not private


async def test_other_chunk_sizes_take_effect_with_a_rebuild(
    settings: Settings, clock: ManualClock
) -> None:
    text = "\n\n".join(f"Paragraph {number} speaks of parcels and days." for number in range(20))
    async with FeatureStore(settings=settings, clock=clock) as store:
        declare_docs(store)
        await store.index("docs", "page", text)
        (one,) = await store.indexes.list()
    async with FeatureStore(settings=settings, clock=clock) as store:
        words = declare_docs(store, chunk_tokens=32, overlap=0)
        await store.index("docs", "copy", text)
        (two,) = await store.indexes.list()
        assert two.chunks == 2 * one.chunks
        assert two.needs_reindex
        assert not words.texts  # the embeddings of equal chunks are used again
        assert await store.indexes.reindex("docs") == 2
        (three,) = await store.indexes.list()
        assert three.chunks > two.chunks
        assert not three.needs_reindex


async def test_a_rebuild_of_an_empty_index_has_nothing_to_do(lexical: FeatureStore) -> None:
    assert await lexical.indexes.reindex("docs") == 0
    assert await lexical.search("docs", "parcels") == []


async def test_an_index_without_documents_takes_another_embedder_at_once(
    lexical: FeatureStore, settings: Settings, clock: ManualClock
) -> None:
    await index_all(lexical)
    clock.advance("1s")
    before = clock.now()
    clock.advance("1s")
    for document in ("parcels", "returns", "giraffes"):
        await lexical.unindex("docs", document)
    async with redeclared(settings, clock, Words()) as store:
        await store.index("docs", "new", PARCELS)
        assert documents(await store.search("docs", "parcels")) == ["new"]
        (status,) = await store.indexes.list()
        assert (status.documents, status.outdated, status.needs_reindex) == (1, 0, False)
        past = await store.search("docs", "parcels", top_k=1, as_of=before)
        assert documents(past) == ["parcels"]
        old, _ = await generations(store)
        assert (old.state, old.outdated) == ("retired", 0)


async def test_the_past_before_a_rebuild_is_searched_with_its_embedder_until_it_is_pruned(
    lexical: FeatureStore, settings: Settings, clock: ManualClock
) -> None:
    await lexical.index("docs", "page", PARCELS)
    clock.advance("1d")
    before = clock.now()
    clock.advance("1d")
    words = Words()
    async with redeclared(settings, clock, words) as store:
        await store.indexes.reindex("docs")
        clock.advance("1d")
        await store.index("docs", "page", RETURNS)
        embedded = list(words.texts)
        assert texts(await store.search("docs", "days", as_of=before)) == [PARCELS]
        assert words.texts == embedded
        await maintain(store)
        assert texts(await store.search("docs", "days", as_of=before)) == [PARCELS]
        clock.advance("31d")
        await maintain(store)
        with pytest.raises(InvalidInputError, match="no longer has its version of"):
            await store.search("docs", "days", as_of=before)
        assert [each.state for each in await generations(store)] == ["active"]
        assert texts(await store.search("docs", "days")) == [RETURNS]
        clock.advance("1d")
        assert texts(await store.search("docs", "days", as_of=clock.now())) == [RETURNS]


async def test_an_index_that_is_no_longer_declared_is_listed_and_can_be_dropped(
    lexical: FeatureStore, settings: Settings, clock: ManualClock
) -> None:
    await index_all(lexical)
    async with FeatureStore(settings=settings, clock=clock) as store:
        (status,) = await store.indexes.list()
        assert (status.name, status.is_declared, status.documents) == ("docs", False, 3)
        assert status.declared_spec is None
        assert not status.needs_reindex
        with pytest.raises(UnknownNameError, match="unknown index 'doc'; did you mean 'docs'"):
            await store.indexes.drop("doc")
        assert await store.indexes.drop("docs") == 3
        assert await store.indexes.list() == []
