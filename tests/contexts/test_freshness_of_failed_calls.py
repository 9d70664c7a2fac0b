"""Freshness: reads of a call that fails count, also if the error is caught."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headwater import ContextItem, FeatureStore, context, feature, retriever
from headwater.errors import FeatureFailedError, HeadwaterError, RetrieverTimeoutError


async def test_reads_before_a_caught_failure_count(store: FeatureStore, user: type) -> None:
    @retriever(store)
    async def broken(user_id: str) -> list[str]:
        raise ValueError(await store.get_feature("plan", user_id))

    @context(store, freshness_sla="5m", freshness_strict=True)
    async def strict(user_id: str) -> ContextItem:
        return ContextItem.template("{plan}")

    @context(store, max_tokens=1)
    async def too_long(user_id: str) -> str:
        return f"one token is not enough for {await store.get_feature('plan', user_id)}"

    inner: dict[str, Callable[[str], Awaitable[Any]]]
    inner = {"broken": broken, "strict": strict, "too_long": too_long}

    @context(store, freshness_sla="5m")
    async def outer(user_id: str, name: str) -> str:
        with pytest.raises(HeadwaterError):
            await inner[name](user_id)
        return "went on without it"

    for name in inner:
        ctx = await outer("unknown", name)
        assert ctx.freshness_status == "degraded"
        (read,) = ctx.lineage.features
        assert (read.feature, read.entity_id, read.source) == ("plan", "unknown", "missing")
        found = await store.records.find(feature="plan", entity_id="unknown")
        assert found.contexts[0].context_id == ctx.context_id


async def test_a_search_that_failed_is_in_the_lineage_and_is_not_fresh(store: FeatureStore) -> None:
    @retriever(store, timeout="10ms")
    async def slow(query: str) -> list[str]:
        await asyncio.Event().wait()
        return [query]

    @context(store, freshness_sla="5m")
    async def outer(query: str) -> str:
        with pytest.raises(RetrieverTimeoutError):
            await slow(query)
        return "nothing was found in time"

    ctx = await outer("shoes")
    (search,) = ctx.lineage.retrievers
    assert (search.retriever, search.arguments) == ("slow", {"query": "shoes"})
    assert (search.count, search.failed, search.fresh) == (0, True, False)
    assert search.latency_ms >= 10
    (violation,) = ctx.freshness_violations
    assert (violation.kind, violation.name, violation.reason) == ("retrieval", "slow", "missing")
    past = await store.get_context_at(ctx.context_id)
    assert past.lineage == ctx.lineage


async def test_a_context_with_a_failed_search_is_degraded_without_an_sla_too(
    store: FeatureStore,
) -> None:
    @retriever(store)
    async def broken(query: str) -> list[str]:
        raise OSError("index is away")

    @retriever(store)
    async def guarded(query: str) -> list[str]:
        with pytest.raises(HeadwaterError):
            await broken(query)
        return [query]

    @context(store)
    async def inner(query: str) -> str:
        return f"{await guarded(query)}"

    @context(store)
    async def outer(query: str) -> str:
        return (await inner(query)).content

    within, around = await inner("a"), await outer("a")
    assert [
        (search.retriever, search.failed, search.fresh) for search in within.lineage.retrievers
    ] == [
        ("guarded", False, True),
        ("broken", True, False),
    ]
    for ctx, name in ((within, "broken"), (around, "inner")):
        assert ctx.freshness_status == "degraded"
        (violation,) = ctx.freshness_violations
        assert (violation.name, violation.reason, violation.sla_ms) == (name, "missing", 0)


async def test_a_value_that_could_not_be_computed_is_missing(
    store: FeatureStore, user: type
) -> None:
    @feature(entity=user)
    def score(user_id: str) -> int:
        raise ValueError(user_id)

    @context(store, freshness_sla="5m")
    async def outer(user_id: str) -> str:
        with pytest.raises(FeatureFailedError):
            await store.get_feature("score", user_id)
        return "no score"

    ctx = await outer("u1")
    (read,) = ctx.lineage.features
    assert (read.feature, read.value, read.source, read.fresh) == ("score", None, "missing", False)
    assert ctx.freshness_status == "degraded"


async def test_a_value_read_at_the_second_attempt_is_not_missing(
    store: FeatureStore, user: type
) -> None:
    tries: Counter[str] = Counter()

    def first(what: str) -> None:
        tries[what] += 1
        if tries[what] == 1:
            raise ValueError(what)

    @retriever(store)
    async def flaky(query: str) -> list[str]:
        first("search")
        return [query]

    @feature(entity=user)
    def score(user_id: str) -> int:
        first("score")
        return 1

    @context(store, freshness_sla="5m", freshness_strict=True)
    async def outer(user_id: str) -> str:
        with pytest.raises(HeadwaterError):
            await flaky("a")
        with pytest.raises(HeadwaterError):
            await store.get_feature("score", user_id)
        return f"{await flaky('a')} {await store.get_feature('score', user_id)}"

    ctx = await outer("u1")
    assert [(search.count, search.failed) for search in ctx.lineage.retrievers] == [(1, False)]
    assert [read.source for read in ctx.lineage.features] == ["computed"]


async def test_a_cancelled_search_is_not_a_failure(store: FeatureStore) -> None:
    @retriever(store)
    async def slow(query: str) -> list[str]:
        await asyncio.Event().wait()
        return [query]

    @context(store, freshness_sla="5m", freshness_strict=True)
    async def outer() -> str:
        loser = asyncio.create_task(slow("a"))
        await asyncio.sleep(0)
        loser.cancel()
        await asyncio.wait([loser])
        return "another one was quicker"

    assert (await outer()).lineage.retrievers == []


async def test_a_feature_that_handles_a_failed_search_is_stored(
    store: FeatureStore, user: type
) -> None:
    computed = []

    @retriever(store)
    async def broken(query: str) -> list[str]:
        raise ValueError(query)

    @feature(entity=user, ttl="5m")
    async def summary(user_id: str) -> str:
        computed.append(user_id)
        with pytest.raises(HeadwaterError):
            await broken(user_id)
        return "no news"

    for _ in range(3):
        assert await store.get_feature("summary", "u1") == "no news"
    assert computed == ["u1"]


async def test_reads_of_a_failed_feature_are_found(store: FeatureStore, user: type) -> None:
    @feature(entity=user)
    async def score(user_id: str) -> int:
        raise ValueError(await store.get_feature("plan", user_id))

    @context(store)
    async def outer(user_id: str) -> str:
        with pytest.raises(FeatureFailedError):
            await store.get_feature("score", user_id)
        return "no score"

    ctx = await outer("u1")
    found = await store.records.find(feature="plan", entity_id="u1")
    assert [each.context_id for each in found.contexts] == [ctx.context_id]
