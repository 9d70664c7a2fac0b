"""Searches of indexes in records: lineage, provenance, differences, replays and privacy."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from headwater import (
    Chunk,
    ContextItem,
    FeatureStore,
    Index,
    ServiceEvent,
    context,
    entity,
    feature,
    retriever,
)
from headwater.declarations.contexts import ContextFunction
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.engine.support import records
from tests.retrieval.support import PARCELS, RETURNS, Words, declare_docs, documents, index_all

NEWER = "Parcels arrive tomorrow."


def declare_support(store: FeatureStore, **options: Any) -> ContextFunction[[str]]:
    """Declare a context that searches by a wired retriever, and return it."""

    @retriever(store, index="docs", top_k=2, **options)
    def find_help(query: str) -> list[Chunk]: ...  # type: ignore[empty-body]

    @context(store)
    async def support(query: str) -> list[ContextItem]:
        return [ContextItem(chunk.text, source=chunk) for chunk in await find_help(query)]

    return support


async def found(store: FeatureStore, **wanted: Any) -> set[str]:
    """Return the ids of the contexts that a search of the records finds."""
    page = await store.records.find(**wanted)
    return {each.context_id for each in page.contexts}


# Lineage


async def test_lineage_and_record_say_where_every_chunk_comes_from(
    store: FeatureStore, clock: ManualClock
) -> None:
    declare_docs(store)
    await index_all(store)
    clock.advance("2s")
    support = declare_support(store, filters={"year": {"$gte": 2020}}, mode="hybrid")
    ctx = await support("when do parcels arrive")
    (search,) = ctx.lineage.retrievers
    assert (search.retriever, search.index, search.mode) == ("find_help", "docs", "hybrid")
    assert (search.query, search.filters) == ("when do parcels arrive", {"year": {"$gte": 2020}})
    assert search.embedder is not None
    first, second = search.results
    (chunk, _) = await store.search("docs", "when do parcels arrive", top_k=2, mode="hybrid")
    assert (first.id, first.content_hash) == (chunk.id, chunk.content_hash)
    assert (first.document, first.position, first.version) == ("parcels", 0, 1)
    assert (first.indexed_at, first.age_ms) == (chunk.indexed_at, 2_000)
    assert first.score == repr(chunk.score)
    assert second.document == "returns"
    assert (await store.get_context_at(ctx.context_id)).lineage == ctx.lineage

    trace = await store.records.explain(ctx.context_id)
    (told,) = trace.retrievers
    assert [result.content for result in told.results] == [PARCELS, RETURNS]
    assert (told.index_version, told.results[0].content_hash) == (
        search.index_version,
        chunk.content_hash,
    )
    assert (await store.records.verify(ctx.context_id)).ok


async def test_a_direct_search_is_lineage_too(store: FeatureStore) -> None:
    words = declare_docs(store)
    await index_all(store)

    @context(store)
    async def support(query: str) -> str:
        chunks = await store.search("docs", query, top_k=1, filters={"lang": "en"})
        return " ".join(chunk.text for chunk in chunks)

    ctx = await support("parcels")
    (search,) = ctx.lineage.retrievers
    assert (search.retriever, search.index) == ("search:docs", "docs")
    assert search.arguments == {"query": "parcels", "top_k": 1, "filters": {"lang": "en"}}
    assert [result.document for result in search.results] == ["parcels"]
    assert ctx.context_id in await found(store, document="parcels", index="docs")

    @context(store)
    async def guarded(query: str) -> str:
        with pytest.raises(Exception, match="away"):
            await store.search("docs", query)
        return "nothing"

    words.failures.append(OSError("provider is away"))
    failed = await guarded("returns please")
    assert [read.failed for read in failed.lineage.retrievers] == [True]
    assert failed.freshness_status == "degraded"


async def test_a_record_has_the_filters_as_they_were(store: FeatureStore) -> None:
    declare_docs(store)
    await index_all(store)

    @context(store)
    async def support(query: str) -> str:
        langs, year = {"en"}, {"$gte": 2020}
        filters = MappingProxyType({"lang": {"$in": langs}, "year": year})
        chunks = await store.search("docs", query, filters=filters)
        langs.add("de")
        year.clear()
        return f"{len(chunks)}"

    ctx = await support("parcels")
    assert ctx.content == "2"
    assert ctx.lineage.retrievers[0].filters == {"lang": {"$in": {"en"}}, "year": {"$gte": 2020}}
    assert (await store.get_context_at(ctx.context_id)).lineage == ctx.lineage


async def test_a_difference_shows_how_ranks_and_documents_moved(store: FeatureStore) -> None:
    declare_docs(store)
    await store.index("docs", "parcels", "parcels")
    await store.index("docs", "returns", "parcels returns")
    support = declare_support(store)
    before = await support("parcels")
    await store.index("docs", "parcels", "parcels and many other words that nobody needs")
    after = await support("parcels")
    moved = await store.records.diff(before.context_id, after.context_id)
    ranks = {
        result.id.split("#")[0]: [side and side.rank for side in (result.before, result.after)]
        for result in moved.results
        if result.change != "removed"
    }
    assert ranks == {"docs/returns": [2, 1], "docs/parcels": [None, 2]}
    versions = [ctx.lineage.retrievers[0].index_version for ctx in (before, after)]
    assert [(rule.name, rule.before, rule.after) for rule in moved.rules] == [
        ("indexes.docs", *versions)
    ]


# Provenance


async def test_contexts_are_found_by_document_chunk_and_index_however_they_were_read(
    store: FeatureStore,
) -> None:
    declare_docs(store)
    Index(store, "other", embedder="lexical")
    await index_all(store)
    await store.index("other", "parcels", PARCELS)
    support = declare_support(store, cache_ttl="1h")

    @entity(store)
    class Topic:
        topic: str

    @feature(entity=Topic)
    async def summary(topic: str) -> str:
        return " ".join(chunk.text for chunk in await store.search("docs", topic, top_k=1))

    @context(store)
    async def by_template(topic: str) -> ContextItem:
        return ContextItem.template("{summary}")

    @context(store)
    async def outer(query: str) -> str:
        return (await support(query)).content

    @context(store)
    async def of_another_index(query: str) -> str:
        return f"{len(await store.search('other', query))}"

    plain, cached = await support("parcels"), await support("parcels")
    assert cached.lineage.retrievers[0].cache_hit
    templated, around = await by_template("parcels"), await outer("parcels")
    another = await of_another_index("parcels")
    inner = around.lineage.contexts[0]
    expected = {each.context_id for each in (plain, cached, templated, around, inner)}
    assert await found(store, document="parcels", index="docs") == expected
    assert await found(store, index="docs") == expected
    assert await found(store, document="parcels") == expected | {another.context_id}
    assert await found(store, document="parcels", index="other") == {another.context_id}
    chunk = str(plain.lineage.retrievers[0].results[0].id)
    assert await found(store, chunk=chunk) == expected
    assert await found(store, document="parcels", index="docs", feature="summary") == {
        templated.context_id
    }
    assert await found(store, document="parcel", index="docs") == set()


# Replays


async def test_as_of_searches_the_recorded_version_and_live_the_present_one(
    store: FeatureStore, clock: ManualClock
) -> None:
    declare_docs(store)
    await index_all(store)
    support = declare_support(store, cache_ttl="1h")

    @context(store)
    async def directly(query: str) -> str:
        return " ".join(chunk.text for chunk in await store.search("docs", query, top_k=1))

    @context(store)
    async def outer(query: str) -> str:
        return (await directly(query)).content

    clock.advance("1s")
    made = [await each("when do parcels arrive") for each in (support, directly, outer)]
    clock.advance("1h")
    await store.index("docs", "parcels", NEWER)
    await store.unindex("docs", "returns")
    for ctx in made:
        past = await store.replay(ctx.context_id, "as_of")
        assert (past.content, past.matches) == (ctx.content, True)
        assert "retrievers called now" not in past.fidelity
        live = await store.replay(ctx.context_id, "live")
        assert NEWER in str(live.content)
        assert "retrievers called now" in live.fidelity
    first, _, nested = [(await store.replay(ctx.context_id, "as_of")).fidelity for ctx in made]
    assert "indexes in their recorded versions" in first
    assert "unrecorded searches of indexes as of" in nested
    assert set(documents(await store.search("docs", "returns"))) == {"parcels", "giraffes"}


async def test_as_of_uses_the_version_that_was_searched_not_that_of_the_start(
    store: FeatureStore,
) -> None:
    declare_docs(store)
    texts = iter((NEWER, PARCELS))

    @context(store)
    async def support(query: str) -> str:
        search = await store.search("docs", query, top_k=1)
        again = await store.search("docs", query, top_k=1)
        return f"{search[0].text} {again[0].text}"

    @retriever(store)
    async def changing(query: str) -> list[Chunk]:
        text = next(texts, None)
        if text is not None:
            await store.index("docs", "parcels", text)
        return await store.search("docs", query, top_k=1)

    @context(store)
    async def twice(query: str) -> str:
        first, second = await changing(query), await store.search("docs", query, top_k=1)
        return f"{first[0].text} {second[0].text}"

    await store.index("docs", "parcels", "Nothing yet about parcels.")
    ctx = await twice("parcels")
    assert ctx.content == f"{NEWER} {NEWER}"
    await store.index("docs", "parcels", PARCELS)
    next(texts)
    replay = await store.replay(ctx.context_id, "as_of")
    assert (replay.content, replay.matches) == (ctx.content, True)
    assert (await support("parcels")).content == f"{PARCELS} {PARCELS}"


async def test_of_a_version_that_is_no_longer_kept_the_recorded_results_are_used_and_named(
    store: FeatureStore, clock: ManualClock
) -> None:
    declare_docs(store, keep_versions="1h")
    await index_all(store)

    @retriever(store, index="docs", top_k=2)
    def find_help(query: str) -> list[Chunk]: ...  # type: ignore[empty-body]

    @context(store)
    async def support(query: str) -> str:
        return " ".join(
            f"{chunk.text} {chunk.metadata['lang']}" for chunk in await find_help(query)
        )

    unchanged = await support("when do parcels arrive")
    clock.advance("2h")
    # Nothing was replaced since then, so that the version is still the present one.
    same = await store.replay(unchanged.context_id, "as_of")
    assert (same.matches, "recorded versions" in same.fidelity) == (True, True)

    await store.index("docs", "parcels", NEWER, {"lang": "en"})
    clock.advance("2h")
    gone = await store.replay(unchanged.context_id, "as_of")
    assert (gone.matches, NEWER in str(gone.content)) == (True, False)
    assert (
        "recorded results of docs with present metadata, because the version of that time is no "
        "longer kept" in gone.fidelity
    )
    pointer = "/retrievals/0/results/0/content"
    await store.records.redact(unchanged.context_id, pointer, reason="asked")
    withheld = await store.replay(unchanged.context_id, "as_of")
    assert (withheld.matches, NEWER in str(withheld.content)) == (False, True)
    assert "present contents of docs, because the version of that time is no longer kept" in (
        withheld.fidelity
    )


async def test_an_as_of_replay_before_the_first_document_finds_nothing(
    store: FeatureStore, clock: ManualClock
) -> None:
    declare_docs(store)
    support = declare_support(store)
    empty = await support("parcels")
    assert empty.lineage.retrievers[0].index_version == "0.0"
    clock.advance(timedelta(seconds=1))
    await index_all(store)
    assert (await store.replay(empty.context_id, "as_of")).content == ""
    assert PARCELS in str((await store.replay(empty.context_id, "live")).content)


# Privacy


async def test_without_content_no_query_and_no_filter_is_stored_or_logged(
    settings: Settings, clock: ManualClock, capfd: pytest.CaptureFixture[str]
) -> None:
    private = settings.replace(record={"include_content": False})
    store = FeatureStore(settings=private, clock=clock)
    words = declare_docs(store)
    await index_all(store)
    support = declare_support(
        store, filters={"year": {"$gte": "{query}"}}, cache_ttl="1h", on_error="empty"
    )
    try:
        ctx = await support("quibbledash-7731991")
        words.failures.append(OSError("about quibbledash-7731992"))
        failed = await support("quibbledash-7731992")
        assert failed.freshness_status == "degraded"
        past = await store.get_context_at(ctx.context_id)
        (search,) = past.lineage.retrievers
        assert (search.index, search.query, search.filters) == ("docs", None, None)
        assert all(found.document is None for found in search.results)
        assert (await store.records.verify(ctx.context_id)).ok
    finally:
        await store.close()
    logged = capfd.readouterr()
    (warning,) = records(logged.err, "search failed; no results used")
    assert warning["error"] == "EmbeddingError"
    assert "quibbledash" not in logged.err + logged.out
    assert not _is_stored(b"quibbledash", private.home)


def _is_stored(secret: bytes, home: str) -> bool:
    files = [path for path in Path(home).rglob("*") if path.is_file()]
    return any(secret in path.read_bytes() for path in files)


async def test_a_redacted_text_takes_the_ids_and_hashes_of_its_chunk_with_it(
    store: FeatureStore,
) -> None:
    declare_docs(store)
    await store.index("docs", "parcels", PARCELS)
    ctx = await declare_support(store)("parcels")
    await store.records.redact(
        ctx.context_id, "/retrievals/0/results/0/content", reason="a mistake", everywhere=True
    )
    record = await store.records.get(ctx.context_id)
    (result,) = ctx.lineage.retrievers[0].results
    digest = str(result.content_hash).removeprefix("sha256:")
    kept = str(record.disclosures)
    assert PARCELS not in kept
    assert digest[:16] not in kept
    assert "/retrievals/0/results/0/origin/document" in kept
    assert (await store.records.verify(ctx.context_id)).ok


# The whole way


async def test_an_event_with_new_text_is_in_the_next_context(store: FeatureStore) -> None:
    words = Words()
    Index(store, "policies", embedder=words, dimensions=words.dimensions)

    @entity(store)
    class Policy:
        policy_id: str

    @feature(entity=Policy, trigger="policy_changed", default=0)
    async def changes(policy_id: str, event: ServiceEvent) -> int:
        await store.index("policies", policy_id, event.payload["text"], {"lang": "en"})
        return int(await store.get_feature("changes", policy_id)) + 1

    @retriever(store, index="policies", top_k=1, cache_ttl="1h", filters={"lang": "en"})
    def find_policy(question: str) -> list[Chunk]: ...  # type: ignore[empty-body]

    @context(store, max_tokens=100)
    async def answer(question: str) -> list[ContextItem]:
        return [ContextItem(chunk.text, source=chunk) for chunk in await find_policy(question)]

    question, versions = "how long may parcels be returned", []
    for number, text in enumerate(
        ("Parcels may be returned for 30 days.", "Parcels may be returned for 60 days."), 1
    ):
        await answer(question)
        assert (await answer(question)).lineage.retrievers[0].cache_hit
        await store.publish("policy_changed", "parcel-policy", {"text": text})
        await store.drain()
        ctx = await answer(question)
        assert ctx.content == text
        assert not ctx.lineage.retrievers[0].cache_hit
        (search,) = ctx.lineage.retrievers
        (result,) = search.results
        assert (result.document, result.version) == ("parcel-policy", number)
        assert ctx.context_id in await found(store, document="parcel-policy", index="policies")
        versions.append((ctx, search.index_version))
    (old, first), (new, second) = versions
    assert first != second
    assert (await store.replay(old.context_id, "as_of")).content == old.content
    assert (await store.replay(old.context_id, "live")).content == new.content
    assert await store.get_feature("changes", "parcel-policy") == 2
