"""Embeddings in an open store, in both environments."""

from __future__ import annotations

import pytest

from headwater import FeatureStore, Index, ServiceEvent, context, entity, feature
from headwater.errors import IndexMismatchError, MissingApiKeyError
from headwater.settings.schema import Settings
from tests.engine.support import records
from tests.retrieval.embeddings.provider_server import ANSWERED, KEY, ProviderServer, error


@pytest.fixture
def chosen(settings: Settings, server: ProviderServer) -> Settings:
    """Return settings with a provider."""
    return settings.replace(
        embeddings={
            "provider": "openai",
            "base_url": server.url,
            "model": "m",
            "dimensions": 8,
            "api_key": KEY,
        }
    )


def texts_of(server: ProviderServer) -> list[str]:
    return [text for seen in server.seen for text in seen.texts]


async def test_processes_share_the_embeddings_of_queries(
    chosen: Settings, server: ProviderServer
) -> None:
    for _ in range(2):
        async with FeatureStore(settings=chosen) as store:
            Index(store, "docs")
            await store.index("docs", "d1", "A document.")
            (found,) = await store.search("docs", "a question")
            assert found.document == "d1"
    assert texts_of(server) == ["A document.", "a question"]


async def test_a_redaction_drops_cached_embeddings(
    chosen: Settings, server: ProviderServer
) -> None:
    async with FeatureStore(settings=chosen) as store:
        Index(store, "docs")
        await store.index("docs", "d1", "A document.")

        @context(store)
        async def advice(query: str) -> str:
            (found,) = await store.search("docs", query)
            return found.text

        made = await advice("Is Zoë ill?")
        await store.records.redact(made.context_id, "/inputs/query", reason="asked")
        await advice("Is Zoë ill?")
    assert texts_of(server) == ["A document.", "Is Zoë ill?", "Is Zoë ill?"]


async def test_an_event_waits_for_the_provider_and_is_indexed_whole_or_not_at_all(
    chosen: Settings, server: ProviderServer
) -> None:
    quick = chosen.replace(embeddings={"max_retries": 0, "batch_size": 1, "concurrency": 1})
    async with FeatureStore(settings=quick) as store:
        docs = Index(store, "docs", chunk_tokens=16, overlap=0)

        @entity(store)
        class Page:
            page_id: str

        @feature(entity=Page, trigger="edited", max_retries=1)
        async def text(page_id: str, event: ServiceEvent) -> str:
            await store.index(docs, page_id, event.payload["text"])
            return str(event.payload["text"])

        old, new = (
            " ".join(f"In the {n}th {age} year it rained for many days." for n in range(4, 8))
            for age in ("old", "new")
        )
        await store.publish("edited", "p1", {"text": old})
        await store.drain()
        before = {chunk.text for chunk in await store.search("docs", "x")}
        assert len(before) >= 2

        # The first chunk is embedded, the second is not, also when the handler is retried.
        server.faults.extend([ANSWERED, error(503), error(503)])
        await store.publish("edited", "p1", {"text": new})
        await store.drain()
        assert {chunk.text for chunk in await store.search("docs", "x")} == before
        assert await store.get_feature("text", "p1") == old
        (letter,) = await store.dead_letters.list()
        assert "embedding with openai/m failed" in letter.error
        assert KEY not in str(letter)

        await store.dead_letters.redrive(letter.id)
        await store.drain()
        assert len(texts_of(server)) == len(set(texts_of(server))) + 2
        after = {chunk.text for chunk in await store.search("docs", "x")}
        assert after.isdisjoint(before)
        assert await store.get_feature("text", "p1") == new


async def test_a_store_without_a_key_works_until_texts_are_embedded(settings: Settings) -> None:
    chosen = settings.replace(embeddings={"provider": "openai"})
    async with FeatureStore(settings=chosen) as store:
        Index(store, "docs")
        assert [status.name for status in await store.indexes.list()] == ["docs"]
        with pytest.raises(MissingApiKeyError, match="set HEADWATER_EMBEDDINGS_API_KEY or OPENAI_"):
            await store.index("docs", "d1", "A document.")


async def test_a_provider_that_was_never_used_can_be_replaced(settings: Settings) -> None:
    async with FeatureStore(settings=settings) as store:
        Index(store, "docs", embedder="openai")
        with pytest.raises(MissingApiKeyError):
            await store.index("docs", "d1", "A document.")
    async with FeatureStore(settings=settings) as store:
        Index(store, "docs", embedder="lexical")
        with pytest.raises(
            IndexMismatchError, match=r"openai.*is not available here.*reindex docs"
        ):
            await store.search("docs", "document")
        await store.index("docs", "d1", "A document.")
        (chunk,) = await store.search("docs", "document")
        assert chunk.document == "d1"


async def test_a_store_warns_of_embedders_that_cannot_be_used(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    store = FeatureStore(settings=settings)
    Index(store, "docs", embedder="openai")
    Index(store, "wide", embedder="voyage", dimensions=5)
    Index(store, "words", embedder="lexical")
    async with store:
        await store.indexes.list()
        logged = records(capsys.readouterr().err, "embedder of an index cannot be used")
        problems = {record["index"]: record["problem"] for record in logged}
        assert problems.keys() == {"docs", "wide"}
        assert "set HEADWATER_EMBEDDINGS_API_KEY or OPENAI_API_KEY" in problems["docs"]
        with pytest.raises(MissingApiKeyError, match="or choose a provider that needs none"):
            await store.search("docs", "nothing is indexed")
        assert await store.search("docs", "words need no key", mode="text") == []
