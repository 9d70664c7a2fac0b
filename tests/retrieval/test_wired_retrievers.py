"""Retrievers that are wired to an index: their queries, filters, cache, errors and lineage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from headwater import Chunk, FeatureStore, Index, ServiceEvent, context, feature, retriever
from headwater.declarations.runtime import runtime_of
from headwater.errors import (
    DeclarationError,
    EmbeddingError,
    FreshnessSLAError,
    InvalidInputError,
    RetrieverTimeoutError,
    UnknownNameError,
)
from headwater.testing import ManualClock
from tests.engine.support import records, until, until_shared
from tests.retrieval.support import (
    PARCELS,
    Words,
    declare_docs,
    documents,
    index_all,
    texts,
)

Search = Callable[..., Coroutine[Any, Any, list[Chunk]]]


def wired(store: FeatureStore, **options: Any) -> Search:
    """Return a retriever of the index ``docs``."""

    @retriever(store, index="docs", **options)
    def find_help(query: str) -> list[Chunk]: ...  # type: ignore[empty-body]

    return find_help


# Declarations


async def test_an_empty_function_searches_its_index(store: FeatureStore) -> None:
    declare_docs(store)
    await index_all(store)
    for number, body in enumerate((_dots, _described, _awaited)):
        search = retriever(store, index="docs", top_k=1, name=f"search_{number}")(body)
        (chunk,) = await search("when do parcels arrive")
        assert (chunk.text, chunk.document, chunk.position) == (PARCELS, "parcels", 0)
    direct = await store.search("docs", "when do parcels arrive", top_k=1)
    assert direct == [chunk]


def _dots(query: str) -> list[Chunk]: ...  # type: ignore[empty-body]


def _described(query: str) -> list[Chunk]:  # type: ignore[empty-body]
    """Find passages."""


async def _awaited(query: str) -> list[Chunk]: ...  # type: ignore[empty-body]


async def test_an_index_that_a_retriever_names_exists_with_defaults(store: FeatureStore) -> None:
    search = wired(store)
    assert await search("anything") == []
    await store.index("docs", "parcels", PARCELS)
    assert texts(await search("parcels")) == [PARCELS]
    with pytest.raises(UnknownNameError, match="did you mean 'docs'"):
        await store.index("doc", "parcels", PARCELS)


async def test_an_index_may_be_declared_after_its_retriever_and_named_by_its_object(
    store: FeatureStore,
) -> None:
    wired(store)
    words = Words()
    docs = Index(store, "docs", embedder=words, dimensions=words.dimensions)

    @retriever(store, index=docs, top_k=1)
    def find(query: str) -> list[Chunk]: ...  # type: ignore[empty-body]

    await index_all(store)
    assert documents(await find("free returns")) == ["returns"]
    assert words.texts[-1] == "free returns"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"index": "docs", "top_k": 1_001}, "top_k must be a whole number from 1 to 1000"),
        ({"index": "docs", "mode": "vectors"}, "unknown mode 'vectors' of a search; did you mean"),
        ({"index": "docs", "min_score": 2}, "min_score is a cosine from -1 to 1"),
        ({"index": "docs", "diversity": -1}, "diversity must be a number from 0"),
        ({"index": "docs", "rerank": 5}, "rerank must be a function"),
        ({"index": "docs", "filters": "lang"}, "filters must be a mapping such as"),
        (
            {"index": "docs", "filters": {"year": {"$gt3": 1}}},
            "unknown operator '$gt3' in the filter of 'year'",
        ),
        ({"index": "docs", "filters": {"year": object()}}, "year"),
        ({"index": "docs", "query": ""}, "query must be a text that is not empty"),
        ({"index": "docs", "query": "{query.x}"}, "is not a feature's name"),
        ({"index": "docs", "query": "{"}, "lone '{' in the template"),
        ({"index": "docs/2"}, "the name of an index consists of letters"),
        ({"index": 5}, "an index is named by a text or its declaration, not 5"),
        ({"on_error": "ignore"}, "unknown on_error 'ignore'"),
        ({"index": "docs", "freshness_sla": "soon"}, "freshness_sla: 'soon' is not a duration"),
        ({"filters": {"lang": "en"}}, "filters needs index="),
        ({"query": "{query}"}, "query needs index="),
        ({"indx": "docs"}, "unknown option 'indx'; did you mean 'index'"),
        ({}, "its body must be a search; it is empty: pass index= to search an index"),
    ],
)
def test_an_invalid_option_is_refused_where_it_is_declared(
    store: FeatureStore, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(DeclarationError) as caught:
        retriever(store, **options)(_dots)
    assert problem in str(caught.value)
    assert "test_wired_retrievers.py" in str(caught.value)
    assert runtime_of(store).registry.retrievers == {}


def test_a_function_with_a_body_cannot_be_wired(store: FeatureStore) -> None:
    def find(query: str) -> list[str]:
        return [query]

    with pytest.raises(DeclarationError, match=r"remove its body, or remove index= and call"):
        retriever(store, index="docs")(find)


async def test_the_id_of_an_entity_is_not_the_query(store: FeatureStore, user: type) -> None:
    declare_docs(store)

    @retriever(store, index="docs", top_k=1)
    def search_docs(user_id: str, question: str) -> list[Chunk]: ...  # type: ignore[empty-body]

    await index_all(store)
    assert documents(await search_docs("ada", "When do parcels arrive?")) == ["parcels"]


def test_the_parameter_for_the_query_must_be_clear(store: FeatureStore) -> None:
    def several(user_id: str, question: str) -> list[Chunk]: ...  # type: ignore[empty-body]

    def none(count: int) -> list[Chunk]: ...  # type: ignore[empty-body]

    with pytest.raises(DeclarationError, match=r"several .* \(user_id, question\).*query='{quest"):
        retriever(store, index="docs")(several)
    with pytest.raises(DeclarationError, match=r"none is a text; .*query='{question}'"):
        retriever(store, index="docs")(none)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"query": "{qestion}"}, "refers to 'qestion', which is neither one of its parameters nor"),
        ({"filters": {"plan": "{plann}"}}, "did you mean 'plan'?"),
        ({"filters": {"plan": "{plan}"}}, "so the function needs a parameter 'user_id'"),
        ({"filters": {"tag": {"$in": "{question}x"}}}, None),
        ({"filters": {"year": {"$gte": "{question}"}, "$or": [{"lang": "{question}"}]}}, None),
    ],
)
async def test_references_are_checked_when_the_store_opens(
    store: FeatureStore, user: type, options: dict[str, Any], problem: str | None
) -> None:
    @retriever(store, index="docs", **options)
    def find(question: str) -> list[Chunk]: ...  # type: ignore[empty-body]

    if problem is None:
        await store.open()
        return
    with pytest.raises(DeclarationError) as caught:
        await store.open()
    assert problem in str(caught.value)
    assert "retriever 'find'" in str(caught.value)
    assert "test_wired_retrievers.py" in str(caught.value)


# Queries and filters


@pytest.mark.both_environments
async def test_templates_name_parameters_and_features(store: FeatureStore, user: type) -> None:
    words = declare_docs(store)

    @feature(entity=user, trigger="joined", default=2000)
    def since(user_id: str, event: ServiceEvent) -> int:
        return 0

    @retriever(
        store,
        index="docs",
        query="{question} for plan {plan} {{free}}",
        filters={"year": {"$gte": "{since}"}, "lang": {"$in": "{langs}"}, "region": "{at}-west"},
    )
    def find(user_id: str, question: str, langs: list[str], at: str = "eu") -> list[Chunk]: ...  # type: ignore[empty-body]

    for document, year, lang, region in (
        ("kept", 2024, "en", "eu-west"),
        ("old", 1999, "en", "eu-west"),
        ("other language", 2024, "fr", "eu-west"),
        ("elsewhere", 2024, "en", "us-west"),
    ):
        metadata = {"year": year, "lang": lang, "region": region}
        await store.index("docs", document, PARCELS, metadata)
    await store.set_feature("plan", "u1", "pro")

    @context(store)
    async def support(user_id: str, question: str) -> str:
        return " ".join(texts(await find(user_id, question, ["en", "de"])))

    ctx = await support("u1", "where are parcels")
    assert ctx.content == PARCELS
    (search,) = ctx.lineage.retrievers
    assert search.query == "where are parcels for plan pro {free}"
    assert search.filters == {
        "year": {"$gte": 2000},
        "lang": {"$in": ["en", "de"]},
        "region": "eu-west",
    }
    assert [found.document for found in search.results] == ["kept"]
    assert words.texts[-1] == search.query
    assert {read.feature for read in ctx.lineage.features} == {"plan", "since"}
    assert (await store.records.find(feature="plan", entity_id="u1")).contexts


async def test_a_filter_that_a_value_makes_invalid_is_an_error_of_the_search(
    store: FeatureStore,
) -> None:
    declare_docs(store)

    @retriever(store, index="docs", filters={"year": {"$gte": "{year}"}})
    def find(query: str, year: int | None) -> list[Chunk]: ...  # type: ignore[empty-body]

    await index_all(store)
    assert documents(await find("parcels", 2024)) != []
    with pytest.raises(InvalidInputError, match="'year' compares with a number or a text"):
        await find("parcels", None)


async def test_the_options_of_a_search_apply(store: FeatureStore) -> None:
    declare_docs(store)
    await index_all(store)

    def backwards(query: str, chunks: list[Chunk]) -> list[Chunk]:
        return chunks[::-1]

    plain = wired(store, name="plain", mode="text")
    turned = wired(store, name="turned", mode="text", rerank=backwards)
    near = wired(store, name="near", min_score=0.99)
    query = "parcels returns days"
    assert documents(await turned(query)) == documents(await plain(query))[::-1]
    assert await near("something else") == []


# The cache


@pytest.mark.both_environments
async def test_a_change_of_the_index_is_visible_at_once(
    store: FeatureStore, clock: ManualClock
) -> None:
    declare_docs(store)
    await index_all(store)
    search = wired(store, top_k=1, cache_ttl="1h")

    @context(store)
    async def support(query: str) -> str:
        return " ".join(texts(await search(query)))

    first = await support("when do parcels arrive")
    clock.advance("30s")
    again = await support("when do parcels arrive")
    one, two = first.lineage.retrievers[0], again.lineage.retrievers[0]
    assert (one.cache_hit, two.cache_hit) == (False, True)
    assert two.age_ms == 30_000
    assert (two.searched_at, two.index_version) == (one.searched_at, one.index_version)
    assert (two.query, two.embedder, two.mode) == (one.query, one.embedder, "vector")
    assert [found.content_hash for found in one.results] == [
        found.content_hash for found in two.results
    ]

    await store.index("docs", "parcels", "Parcels arrive tomorrow.")
    changed = await support("when do parcels arrive")
    assert changed.content == "Parcels arrive tomorrow."
    assert changed.lineage.retrievers[0].cache_hit is False
    assert changed.lineage.retrievers[0].index_version != one.index_version
    await store.unindex("docs", "parcels")
    assert "Parcels" not in (await support("when do parcels arrive")).content


async def test_a_function_that_searches_an_index_sees_its_changes_at_once_too(
    store: FeatureStore,
) -> None:
    declare_docs(store)
    calls: list[str] = []

    @retriever(store, cache_ttl="1h")
    async def own(query: str) -> list[Chunk]:
        calls.append(query)
        return await store.search("docs", query, top_k=1)

    @retriever(store, cache_ttl="1h")
    async def outer(query: str) -> list[Chunk]:
        return await own(query)

    assert await outer("parcels") == []
    await index_all(store)
    for _ in range(3):
        assert documents(await outer("parcels")) == ["parcels"]
    assert calls == ["parcels"] * 2
    await store.index("docs", "parcels", "No mail today.")
    assert documents(await outer("parcels")) != ["parcels"] or len(calls) == 3


async def test_feature_values_and_options_are_part_of_the_key(
    store: FeatureStore, user: type
) -> None:
    declare_docs(store)
    await store.index("docs", "for-pro", PARCELS, {"plan": "pro"})
    await store.index("docs", "for-free", PARCELS, {"plan": "free"})

    @retriever(store, index="docs", filters={"plan": "{plan}"}, cache_ttl="1h")
    def find(user_id: str, query: str) -> list[Chunk]: ...  # type: ignore[empty-body]

    await store.set_feature("plan", "u1", "pro")
    assert documents(await find("u1", "parcels")) == ["for-pro"]
    await store.set_feature("plan", "u1", "free")
    assert documents(await find("u1", "parcels")) == ["for-free"]


async def test_retrievers_that_are_declared_differently_share_no_results(
    store: FeatureStore, clock: ManualClock
) -> None:
    words = declare_docs(store)
    await index_all(store)
    assert len(await wired(store, cache_ttl="1h", top_k=3)("parcels")) == 3
    changed = FeatureStore(settings=store.settings, clock=clock)
    declare_docs(changed, words)
    try:
        for options in ({"mode": "text"}, {"filters": {"lang": "de"}}, {"top_k": 1}):
            runtime_of(changed).registry.retrievers.clear()
            search = wired(changed, cache_ttl="1h", **{"top_k": 3, **options})
            assert len(await search("parcels")) < 3, options
    finally:
        await changed.close()


async def test_identical_calls_share_one_search_unless_the_index_changed_since(
    store: FeatureStore,
) -> None:
    go_on, searches = asyncio.Event(), []

    async def pausing(query: str, chunks: list[Chunk]) -> list[Chunk]:
        searches.append(texts(chunks))
        await go_on.wait()
        return chunks

    declare_docs(store)
    search = wired(store, top_k=1, cache_ttl="1h", rerank=pausing)
    await store.index("docs", "parcels", PARCELS)
    early = [asyncio.create_task(search("parcels")) for _ in range(3)]
    await until_shared(store, 3)
    await until(lambda: searches == [[PARCELS]])
    await store.index("docs", "parcels", "Parcels arrive tomorrow.")
    late = asyncio.create_task(search("parcels"))
    await asyncio.sleep(0)
    go_on.set()
    assert texts(await late) == ["Parcels arrive tomorrow."]
    assert [texts(await each) for each in early] == [[PARCELS]] * 3
    assert searches == [[PARCELS], ["Parcels arrive tomorrow."]]


async def test_results_of_another_embedder_are_never_served(
    store: FeatureStore, clock: ManualClock
) -> None:
    declare_docs(store)
    await index_all(store)
    first = wired(store, top_k=1, cache_ttl="1h")
    (before,) = await first("when do parcels arrive")

    changed = FeatureStore(settings=store.settings, clock=clock)
    words = declare_docs(changed, Words(32), model="second")
    search = wired(changed, top_k=1, cache_ttl="1h")
    try:
        await changed.indexes.reindex("docs")
        words.texts.clear()
        (after,) = await search("when do parcels arrive")
        assert words.texts == ["when do parcels arrive"]
        assert (before.document, after.document) == ("parcels", "parcels")
        assert before.score != after.score
    finally:
        await changed.close()


# Errors


async def test_a_failed_search_raises_and_is_not_cached(store: FeatureStore) -> None:
    words = declare_docs(store)
    await index_all(store)
    search = wired(store, top_k=1, cache_ttl="1h")
    words.failures.append(OSError("provider is away"))
    with pytest.raises(EmbeddingError):
        await search("parcels")
    assert documents(await search("parcels")) == ["parcels"]


@pytest.mark.both_environments
async def test_on_error_empty_returns_nothing_and_makes_the_context_degraded(
    store: FeatureStore, capfd: pytest.CaptureFixture[str]
) -> None:
    words = declare_docs(store)
    await index_all(store)
    search = wired(store, top_k=1, cache_ttl="1h", on_error="empty")

    @retriever(store, cache_ttl="1h")
    async def around(query: str) -> list[Chunk]:
        return await search(query)

    @context(store)
    async def support(query: str) -> str:
        return f"{documents(await around(query))}"

    words.failures.append(OSError("provider is away"))
    failed = await support("parcels")
    assert (failed.content, failed.freshness_status) == ("[]", "degraded")
    by_name = {read.retriever: read for read in failed.lineage.retrievers}
    assert (by_name["find_help"].failed, by_name["find_help"].fresh) == (True, False)
    (violation,) = failed.freshness_violations
    assert (violation.name, violation.reason) == ("find_help", "missing")
    (warning,) = records(capfd.readouterr().err, "search failed; no results used")
    assert warning["retriever"] == "find_help"
    assert "provider is away" in warning["error"]
    with pytest.raises(InvalidInputError):
        await search()

    @context(store, freshness_sla="1h", freshness_strict=True)
    async def strict(query: str) -> str:
        return f"{documents(await search(query))}"

    words.failures.append(OSError("provider is away"))
    with pytest.raises(FreshnessSLAError, match="find_help"):
        await strict("returns")

    healthy = await support("parcels")
    assert (healthy.content, healthy.freshness_status) == ("['parcels']", "guaranteed")


async def test_a_search_that_takes_too_long_times_out(store: FeatureStore) -> None:
    async def never(query: str, chunks: list[Chunk]) -> list[Chunk]:
        await asyncio.Event().wait()
        return chunks

    declare_docs(store)
    await index_all(store)
    with pytest.raises(RetrieverTimeoutError, match="'find_help'"):
        await wired(store, rerank=never, timeout="10ms")("parcels")


# Freshness


async def test_an_sla_of_a_retriever_replaces_that_of_the_context(
    store: FeatureStore, clock: ManualClock
) -> None:
    declare_docs(store)
    await index_all(store)
    strict = wired(store, name="strict", cache_ttl="1h", freshness_sla="1m")
    lenient = wired(store, name="lenient", cache_ttl="1h", freshness_sla="1h")

    @context(store, freshness_sla="5m")
    async def support(query: str) -> str:
        return f"{len(await strict(query))} {len(await lenient(query))}"

    @context(store, freshness_sla="5m")
    async def patient(query: str) -> str:
        return f"{len(await lenient(query))}"

    @context(store, freshness_sla="5m")
    async def outer(query: str) -> str:
        return (await patient(query)).content

    assert (await support("parcels")).is_fresh
    clock.advance("10m")
    ctx = await support("parcels")
    (violation,) = ctx.freshness_violations
    assert (violation.name, violation.reason, violation.sla_ms) == ("strict", "stale", 60_000)
    assert violation.age_ms == timedelta(minutes=10) / timedelta(milliseconds=1)
    slas = {read.retriever: (read.sla_ms, read.fresh) for read in ctx.lineage.retrievers}
    assert slas == {"strict": (60_000, False), "lenient": (3_600_000, True)}
    assert (await outer("parcels")).is_fresh
