"""Retrievers with `record=True`: foreign searches replay from the record."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from headwater import (
    Chunk,
    ContextItem,
    FeatureStore,
    context,
    retriever,
)
from headwater.declarations.contexts import ContextFunction
from headwater.errors import DeclarationError, RetrieverFailedError
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.retrieval.support import declare_docs, index_all

pytestmark = pytest.mark.both_environments

FOUND = [
    Chunk(
        text="Parcels take a week.",
        id="web-1",
        score=0.1 + 0.2,
        metadata={"title": "Posting", "at": datetime(2026, 1, 2, tzinfo=UTC), "tags": {"a", "b"}},
        document="posting",
        content_hash="sha256:00",
    ),
    Chunk(
        text="Straße 🦒",
        score=float("-inf"),
        metadata={"price": Decimal("1.50"), "pair": (1, 2.0)},
        position=4,
        version=2,
        indexed_at=datetime(2026, 1, 3, tzinfo=UTC),
    ),
]


class Web:
    """A foreign search, which counts its calls and can be changed."""

    def __init__(self) -> None:
        self.calls = 0
        self.results: list[Chunk] = FOUND
        self.failure: Exception | None = None

    def search(self) -> list[Chunk]:
        self.calls += 1
        if self.failure is not None:
            raise self.failure
        return self.results


def declare(store: FeatureStore, web: Web, **options: Any) -> ContextFunction[[str]]:
    """Declare a context of a foreign search, which prints all fields of what it found."""

    @retriever(store, **{"record": True, **options})
    def pages(query: str) -> list[Chunk]:
        return web.search()

    @context(store)
    async def support(query: str) -> list[ContextItem]:
        return [ContextItem(f"{_fields(chunk)}", source=chunk) for chunk in await pages(query)]

    return support


def _fields(chunk: Chunk) -> list[object]:
    """Return the fields of a chunk; a set has no order."""
    fields = [getattr(chunk, name) for name in Chunk.__struct_fields__]
    return [
        {k: sorted(v) if isinstance(v, set) else v for k, v in f.items()}
        if isinstance(f, dict)
        else f
        for f in fields
    ]


async def test_a_replay_returns_the_recorded_results_and_calls_nothing(
    store: FeatureStore, clock: ManualClock
) -> None:
    web = Web()
    support = declare(store, web)
    ctx = await support("parcels")
    web.results = [Chunk(text="Something else")]
    clock.advance("30d")
    past = await store.replay(ctx.context_id, "as_of")
    assert (past.content, past.matches, web.calls) == (ctx.content, True, 1)
    assert "recorded results of pages" in past.fidelity
    assert "retrievers called now" not in past.fidelity
    assert past.context is not None
    assert past.context.lineage.retrievers[0].results == ctx.lineage.retrievers[0].results
    assert past.context.freshness_status == ctx.freshness_status
    live = await store.replay(ctx.context_id, "live")
    assert ("Something else" in str(live.content), web.calls) == (True, 2)
    assert (await store.records.verify(ctx.context_id)).ok


async def test_each_call_gets_what_it_found_then(store: FeatureStore) -> None:
    web, numbers = Web(), iter(range(9))

    @retriever(store, record=True)
    def pages(query: str, limit: int = 3) -> list[str]:
        web.calls += 1
        return [f"{query}-{next(numbers)}"] if query != "none" else []

    @context(store)
    async def support(query: str) -> str:
        calls = [await pages(q) for q in (query, "other", query, "none")]
        return " ".join(chunk.text for chunks in calls for chunk in chunks)

    ctx = await support("a")
    assert (ctx.content, web.calls) == ("a-0 other-1 a-2", 4)
    past = await store.replay(ctx.context_id, "as_of")
    assert (past.content, web.calls) == (ctx.content, 4)


async def test_a_search_with_other_arguments_is_called_now(store: FeatureStore) -> None:
    web, extra = Web(), [""]

    @retriever(store, record=True)
    def pages(query: str) -> list[str]:
        web.calls += 1
        return [query]

    @context(store)
    async def support(query: str) -> str:
        return (await pages(query + extra[0]))[0].text

    ctx = await support("parcels")
    extra[0] = " today"
    past = await store.replay(ctx.context_id, "as_of")
    assert (past.content, web.calls) == ("parcels today", 2)
    assert "retrievers called now" in past.fidelity


@pytest.mark.parametrize("on_error", ["raise", "empty"])
async def test_a_search_that_failed_then_fails_again(store: FeatureStore, on_error: str) -> None:
    web = Web()

    @retriever(store, record=True, on_error=on_error)  # type: ignore[arg-type]
    def pages(query: str) -> list[Chunk]:
        return web.search()

    @context(store)
    async def support(query: str) -> str:
        try:
            return f"{len(await pages(query))} pages"
        except RetrieverFailedError:
            return "no pages"

    web.failure = OSError("away")
    ctx = await support("parcels")
    web.failure = None
    past = await store.replay(ctx.context_id, "as_of")
    assert past.context is not None
    assert (past.content, web.calls) == (ctx.content, 1)
    assert past.context.freshness_status == ctx.freshness_status == "degraded"


async def test_what_the_search_read_is_lineage_of_the_replay_too(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    web = Web()

    @retriever(store, record=True)
    async def pages(user_id: str) -> list[str]:
        web.calls += 1
        return [f"for {await store.get_feature('plan', user_id)}"]

    @context(store, freshness_sla="1h")
    async def support(user_id: str) -> str:
        return (await pages(user_id))[0].text

    await store.set_feature("plan", "u1", "gold")
    clock.advance("10s")
    ctx = await support("u1")
    await store.set_feature("plan", "u1", "iron")
    past = await store.replay(ctx.context_id, "as_of")
    assert past.context is not None
    assert past.differences is not None
    assert (past.content, web.calls) == ("for gold", 1)
    assert [read.change for read in past.differences.features] == ["same"]
    assert past.context.lineage.retrievers[0].age_ms == ctx.lineage.retrievers[0].age_ms
    assert past.context.freshness_status == ctx.freshness_status


async def test_cached_results_are_recorded_as_a_whole(store: FeatureStore) -> None:
    web = Web()
    support = declare(store, web, cache_ttl="1h")
    first, second = await support("parcels"), await support("parcels")
    assert [ctx.lineage.retrievers[0].cache_hit for ctx in (first, second)] == [False, True]
    web.results = []
    for ctx in (first, second):
        assert (await store.replay(ctx.context_id, "as_of")).content == ctx.content
    assert web.calls == 1


async def test_an_explanation_shows_the_recorded_metadata(store: FeatureStore) -> None:
    support = declare(store, Web())
    trace = await store.records.explain((await support("parcels")).context_id)
    assert [result.metadata for result in trace.retrievers[0].results] == [
        chunk.metadata for chunk in FOUND
    ]


async def test_without_the_option_a_record_has_no_metadata_and_the_search_is_called_now(
    store: FeatureStore,
) -> None:
    web = Web()
    support = declare(store, web, record=False)
    ctx = await support("parcels")
    assert b'"kept":' not in (await store.records.get(ctx.context_id)).core
    trace = await store.records.explain(ctx.context_id)
    assert {result.metadata for result in trace.retrievers[0].results} == {None}
    await store.replay(ctx.context_id, "as_of")
    assert web.calls == 2


async def test_without_content_the_metadata_are_only_committed_to(
    settings: Settings, clock: ManualClock
) -> None:
    private = settings.replace(record={"include_content": False})
    store, web = FeatureStore(settings=private, clock=clock), Web()
    support = declare(store, web)
    try:
        ctx = await support("parcels")
        trace = await store.records.explain(ctx.context_id)
        assert "/retrievals/0/kept/metadata" in trace.withheld
        record = await store.records.get(ctx.context_id)
        assert b'"kept":' in record.core
        assert record.disclosures == ()
        assert (await store.records.verify(ctx.context_id)).ok
    finally:
        await store.close()


async def test_redacted_metadata_are_found_erased_and_not_replayed(store: FeatureStore) -> None:
    web = Web()
    web.results = [Chunk(text="A page", metadata={"author": "Ada Lovelace"})]
    support = declare(store, web)
    ctx = await support("Ada Lovelace")
    pointer = "/retrievals/0/kept/metadata"
    assert pointer in (await store.records.copies(ctx.context_id, "/inputs/query"))[ctx.context_id]
    await store.records.redact(ctx.context_id, pointer, reason="asked")
    assert (await store.records.verify(ctx.context_id)).ok
    past = await store.replay(ctx.context_id, "as_of")
    assert (web.calls, "retrievers called now" in past.fidelity) == (2, True)


async def test_a_forgotten_entity_leaves_no_metadata(store: FeatureStore, user: type) -> None:
    @retriever(store, record=True)
    async def pages(user_id: str) -> list[Chunk]:
        return [Chunk(text=str(await store.get_feature("plan", user_id)), metadata={"of": user_id})]

    @context(store)
    async def support(user_id: str) -> str:
        return (await pages(user_id))[0].text

    await store.set_feature("plan", "u1", "gold")
    ctx = await support("u1")
    await store.admin.forget("User", "u1", reason="asked")
    record = await store.records.get(ctx.context_id)
    assert record.disclosures == ()


async def test_a_search_of_a_version_that_is_gone_returns_its_recorded_results(
    store: FeatureStore, clock: ManualClock
) -> None:
    declare_docs(store, keep_versions="1h")
    await index_all(store)

    @retriever(store, index="docs", top_k=2, record=True)
    def find_help(query: str) -> list[Chunk]: ...  # type: ignore[empty-body]

    @context(store)
    async def support(query: str) -> str:
        return " ".join(f"{chunk.text} {chunk.metadata}" for chunk in await find_help(query))

    ctx = await support("when do parcels arrive")
    await store.index("docs", "parcels", "Parcels are late.", {"lang": "fr"})
    clock.advance("2h")
    past = await store.replay(ctx.context_id, "as_of")
    assert (past.content, past.matches) == (ctx.content, True)
    assert "recorded results of find_help" in past.fidelity


def test_record_is_true_or_false(store: FeatureStore) -> None:
    with pytest.raises(DeclarationError, match="record"):

        @retriever(store, record="yes")  # type: ignore[arg-type]
        def pages(query: str) -> list[str]:
            return [query]
