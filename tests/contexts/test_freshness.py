"""Freshness: everything that is older than the SLA, or has no age, is a violation."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from headwater import (
    Context,
    ContextItem,
    FeatureStore,
    FreshnessSLAError,
    ServiceEvent,
    context,
    feature,
    retriever,
)
from headwater.declarations import ContextFunction
from headwater.errors import (
    FeatureFailedError,
    HeadwaterError,
    LooserOverrideError,
    RetrieverTimeoutError,
)
from headwater.testing import ManualClock
from tests.contexts.support import recorded
from tests.engine.support import metric, records

STATUS = "headwater_context_freshness_status_total"
VIOLATIONS = "headwater_context_freshness_violations_total"
STALEST = "headwater_context_stalest_feature_seconds"


async def visit(store: FeatureStore, entity_id: str = "u1") -> None:
    await store.publish("visit", entity_id, {"plan": "gold"})
    await store.drain()


def declared(store: FeatureStore, *, strict: bool = False) -> ContextFunction[[str]]:
    @context(store, freshness_sla="5m", freshness_strict=strict)
    async def made(user_id: str) -> str:
        return str(await store.get_feature("plan", user_id))

    return made


# Reads of a call that fails, when the error is caught


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


async def test_an_earlier_context_is_as_old_as_its_reads(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    made = declared(store)
    await visit(store)
    clock.advance("2m")
    before = await made("u1")

    @context(store, freshness_sla="5m")
    async def outer() -> ContextItem:
        return ContextItem(str(before), source=before)

    clock.advance("3m")
    assert (await outer()).is_fresh
    clock.advance("1ms")
    ctx = await outer()
    (nested,) = ctx.lineage.contexts
    assert nested.context_id == before.context_id
    (violation,) = ctx.freshness_violations
    assert (violation.kind, violation.age_ms, violation.reason) == ("context", 300_001, "stale")
    found = await store.records.find(feature="plan", entity_id="u1")
    assert ctx.context_id in {each.context_id for each in found.contexts}


async def test_a_value_a_microsecond_older_than_the_sla_is_stale(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    made = declared(store)
    await visit(store)
    clock.advance("5m")
    clock.advance(timedelta(microseconds=1))
    ctx = await made("u1")
    assert [violation.age_ms for violation in ctx.freshness_violations] == [300_001]


# States


async def test_without_an_sla_everything_is_guaranteed(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @context(store)
    async def made(user_id: str) -> str:
        return str(await store.get_feature("plan", user_id))

    await visit(store)
    clock.advance("9d")
    for ctx in (await made("u1"), await made("unknown")):
        assert (ctx.freshness_status, ctx.is_fresh, ctx.freshness_sla_ms) == (
            "guaranteed",
            True,
            None,
        )
        assert list(ctx.freshness_violations) == []
        assert ctx.lineage.features[0].fresh


async def test_a_value_as_old_as_the_sla_is_fresh_and_a_millisecond_later_stale(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    made = declared(store)
    await visit(store)
    clock.advance("5m")
    ctx = await made("u1")
    assert (ctx.freshness_status, ctx.is_fresh) == ("guaranteed", True)
    clock.advance("1ms")
    ctx = await made("u1")
    assert (ctx.freshness_status, ctx.is_fresh) == ("degraded", False)
    (violation,) = ctx.freshness_violations
    assert (violation.kind, violation.name, violation.entity_id) == ("feature", "plan", "u1")
    assert (violation.age_ms, violation.sla_ms, violation.reason) == (300_001, 300_000, "stale")
    assert ctx.meta["freshness_violations"] == [violation]
    assert ctx.meta["freshness_sla_ms"] == ctx.freshness_sla_ms == 300_000
    said = (await recorded(store, ctx)).freshness
    assert (said.status, said.sla_ms, said.stalest_ms) == ("degraded", 300_000, 300_001)
    assert [(v.name, v.entity_id, v.reason) for v in said.violations] == [("plan", "u1", "stale")]


async def test_a_strict_context_refuses_stale_values(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    made = declared(store, strict=True)
    await visit(store)
    assert (await made("u1")).is_fresh
    clock.advance("6m")
    with pytest.raises(FreshnessSLAError, match="'made' is not fresh enough") as caught:
        await made("u1")
    (violation,) = caught.value.violations
    assert (violation.name, violation.age_ms, violation.sla_ms) == ("plan", 360_000, 300_000)


async def test_a_strict_refusal_is_recorded(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    made = declared(store, strict=True)
    await visit(store)
    returned = await made("u1")
    clock.advance("6m")
    with pytest.raises(FreshnessSLAError) as caught:
        await made("u1")
    ref = caught.value.context_id
    assert ref is not None
    assert f"the refusal is recorded as {ref}" in str(caught.value)
    refused = await store.get_context_at(ref)
    assert (refused.freshness_status, refused.is_fresh) == ("refused", False)
    assert refused.freshness_violations == caught.value.violations
    assert refused.inputs == {"user_id": "u1"}
    assert (await store.records.verify(ref)).ok
    listed = (await store.list_contexts(freshness_status="refused")).contexts
    assert [each.context_id for each in listed] == [ref]
    found = (await store.records.find(feature="plan", entity_id="u1")).contexts
    assert [each.context_id for each in found] == [ref, returned.context_id]


async def test_missing_values_and_defaults_violate(store: FeatureStore, user: type) -> None:
    @context(store, freshness_sla="5m")
    async def made(user_id: str) -> ContextItem:
        return ContextItem.template("{plan} {visits}")

    ctx = await made("unknown")
    assert ctx.freshness_status == "degraded"
    assert {(v.name, v.reason, v.age_ms) for v in ctx.freshness_violations} == {
        ("plan", "missing", None),
        ("visits", "default", None),
    }
    assert [read.fresh for read in ctx.lineage.features] == [False, False]


async def test_a_value_computed_from_a_default_is_a_violation(
    store: FeatureStore, user: type
) -> None:
    @feature(entity=user)
    async def rank(user_id: str) -> str:
        return f"rank {await store.get_feature('visits', user_id)}"

    @feature(entity=user, template="{visits} visits")
    def blurb(user_id: str) -> str: ...  # type: ignore[empty-body]

    @context(store, freshness_sla="5m")
    async def made(user_id: str) -> ContextItem:
        return ContextItem.template("{rank} {blurb}")

    ctx = await made("unknown")
    (violation,) = ctx.freshness_violations
    assert (violation.name, violation.reason, violation.used_by) == ("visits", "default", "blurb")
    assert [(read.feature, read.fresh) for read in ctx.lineage.features] == [
        ("blurb", False),
        ("rank", False),
    ]


async def test_a_value_that_is_composed_or_computed_is_as_old_as_its_oldest_input(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="move")
    async def city(user_id: str, event: ServiceEvent) -> str:
        return "Rome"

    @feature(entity=user, template="{plan} in {city}")
    def blurb(user_id: str) -> str: ...  # type: ignore[empty-body]

    @feature(entity=user)
    async def advice(user_id: str) -> str:
        values = await store.get_features(["plan", "city"], [user_id])
        return str(values[user_id])

    @context(store, freshness_sla="5m")
    async def made(user_id: str) -> ContextItem:
        return ContextItem.template("{blurb} {advice}")

    await visit(store)
    clock.advance("6m")
    await store.publish("move", "u1")
    await store.drain()
    ctx = await made("u1")
    assert [(read.feature, read.age_ms, read.rule) for read in ctx.lineage.features] == [
        ("advice", 360_000, "inputs"),
        ("blurb", 360_000, "inputs"),
    ]
    (violation,) = ctx.freshness_violations
    assert (violation.name, violation.used_by) == ("plan", "advice")
    assert (violation.age_ms, violation.reason) == (360_000, "stale")


async def test_a_value_computed_just_now_is_fresh(store: FeatureStore, user: type) -> None:
    @feature(entity=user)
    def now(user_id: str) -> str:
        return "now"

    @context(store, freshness_sla="1ms", freshness_strict=True)
    async def made(user_id: str) -> ContextItem:
        return ContextItem.template("{now}")

    ctx = await made("u1")
    assert (ctx.is_fresh, ctx.lineage.stalest_ms) == (True, 0)


async def test_an_expired_value_is_missing(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="offer", ttl="1m")
    async def offer(user_id: str, event: ServiceEvent) -> str:
        return "10 %"

    @context(store, freshness_sla="1h")
    async def made(user_id: str) -> ContextItem:
        return ContextItem.template("{offer}")

    await store.publish("offer", "u1")
    await store.drain()
    clock.advance("2m")
    ctx = await made("u1")
    assert [(v.name, v.reason) for v in ctx.freshness_violations] == [("offer", "missing")]


# Nothing goes around the check


async def test_the_age_of_a_kept_search_counts(store: FeatureStore, clock: ManualClock) -> None:
    @retriever(store, cache_ttl="1h")
    async def search(query: str) -> list[str]:
        return ["found"]

    @context(store, freshness_sla="5m")
    async def made(query: str) -> str:
        return (await search(query))[0].text

    assert (await made("shoes")).is_fresh
    clock.advance("5m")
    assert (await made("shoes")).is_fresh
    clock.advance("1s")
    ctx = await made("shoes")
    (violation,) = ctx.freshness_violations
    assert (violation.kind, violation.name, violation.entity_id) == ("retrieval", "search", None)
    assert (violation.age_ms, violation.reason) == (301_000, "stale")
    assert not ctx.lineage.retrievers[0].fresh


async def test_a_search_is_as_old_as_its_reads(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @retriever(store, cache_ttl="1h")
    async def search(user_id: str) -> list[str]:
        return [str(await store.get_feature("plan", user_id))]

    @context(store, freshness_sla="5m")
    async def made(user_id: str) -> str:
        return (await search(user_id))[0].text

    await visit(store)
    clock.advance("4m")
    assert (await made("u1")).is_fresh
    clock.advance("2m")
    kept = await made("u1")
    assert kept.lineage.retrievers[0].cache_hit
    assert [(v.kind, v.age_ms) for v in kept.freshness_violations] == [("retrieval", 360_000)]
    for _ in range(2):
        ctx = await made("unknown")
        assert ("search", "missing") in {(v.name, v.reason) for v in ctx.freshness_violations}


def nesting(store: FeatureStore) -> ContextFunction[[str]]:
    """A context of a context of a context, of which only the outermost has an SLA."""

    @context(store)
    async def innermost(user_id: str) -> ContextItem:
        return ContextItem.template("{plan}")

    @context(store)
    async def middle(user_id: str) -> str:
        return str(await innermost(user_id))

    @context(store, freshness_sla="5m")
    async def outer(user_id: str) -> str:
        return str(await middle(user_id))

    return outer


async def test_reads_of_inner_contexts_count(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    outer = nesting(store)
    await visit(store)
    assert (await outer("u1")).is_fresh
    clock.advance("6m")
    ctx = await outer("u1")
    (violation,) = ctx.freshness_violations
    assert (violation.kind, violation.name, violation.reason) == ("context", "middle", "stale")
    assert violation.age_ms == ctx.lineage.stalest_ms == 360_000
    missing = await outer("unknown")
    assert [(v.name, v.reason) for v in missing.freshness_violations] == [("middle", "missing")]


async def test_a_context_inside_grows_older_with_the_time_that_passes(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @context(store)
    async def inner(user_id: str) -> ContextItem:
        return ContextItem.template("{plan}")

    @context(store, freshness_sla="5m")
    async def outer(user_id: str) -> str:
        made = await inner(user_id)
        clock.advance("6m")
        return str(made)

    await visit(store)
    ctx = await outer("u1")
    assert [(v.kind, v.age_ms) for v in ctx.freshness_violations] == [("context", 360_000)]


async def test_a_strict_context_inside_another_stops_both(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    made = declared(store, strict=True)

    @context(store)
    async def outer(user_id: str) -> str:
        return str(await made(user_id))

    with pytest.raises(FreshnessSLAError) as caught:
        await outer("unknown")
    assert caught.value.context == "made"


async def test_a_feature_computed_from_a_context_is_as_old_as_its_reads(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @context(store)
    async def inner(user_id: str) -> ContextItem:
        return ContextItem.template("{plan}")

    @feature(entity=user)
    async def summary(user_id: str) -> str:
        return str(await inner(user_id))

    @context(store, freshness_sla="5m")
    async def outer(user_id: str) -> ContextItem:
        return ContextItem.template("{summary}")

    await visit(store)
    clock.advance("6m")
    assert [(v.name, v.age_ms) for v in (await outer("u1")).freshness_violations] == [
        ("summary", 360_000)
    ]
    assert [v.reason for v in (await outer("unknown")).freshness_violations] == ["default"]


async def test_a_feature_only_in_a_dropped_item_does_not_fail_a_strict_context(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @context(store, freshness_sla="5m", freshness_strict=True, max_tokens=6)
    async def made(user_id: str, items: list[str]) -> list[ContextItem]:
        return [ContextItem("kept", required=True), *map(ContextItem.template, items)]

    await visit(store)
    clock.advance("6m")
    ctx = await made("u1", ["{plan} " * 9])
    assert (ctx.content, ctx.freshness_status) == ("kept", "guaranteed")
    (read,) = ctx.lineage.features
    assert (read.feature, read.used, read.fresh, read.age_ms) == ("plan", False, False, 360_000)
    assert ctx.lineage.stalest_ms is None
    with pytest.raises(FreshnessSLAError):
        await made("u1", ["{plan}", "{plan} " * 9])


async def test_a_feature_that_the_function_reads_counts_also_if_its_item_is_dropped(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @context(store, freshness_sla="5m", max_tokens=3)
    async def made(user_id: str) -> list[ContextItem]:
        plan = await store.get_feature("plan", user_id)
        return [ContextItem("kept", required=True), ContextItem(f"{plan} " * 9)]

    await visit(store)
    clock.advance("6m")
    ctx = await made("u1")
    assert (ctx.content, ctx.freshness_status) == ("kept", "degraded")


async def test_a_call_may_ask_for_fresher_but_not_for_older_values(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    made = declared(store, strict=True)
    await visit(store)
    clock.advance("2m")
    assert (await made("u1")).is_fresh
    with pytest.raises(FreshnessSLAError):
        await made.options(freshness_sla="1m")("u1")
    clock.advance("10m")
    for older in (timedelta(hours=1), None):
        with pytest.raises(LooserOverrideError, match="is looser than the declared 5m"):
            await made.options(freshness_sla=older)("u1")


# What an operator sees


async def test_a_context_that_is_not_fresh_is_a_warning_without_anyones_data(
    store: FeatureStore, user: type, clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    made = declared(store)
    await visit(store)
    await made("u1")
    assert records(capsys.readouterr().err, "context is not fresh") == []
    clock.advance("6m")
    ctx = await made("u1")
    said = capsys.readouterr().err
    (record,) = records(said, "context is not fresh")
    assert record["level"] == "warning"
    assert (record["context"], record["context_id"]) == ("made", ctx.context_id)
    assert record["violations"] == ["plan: stale"]
    assert "u1" not in said
    assert "gold" not in said


async def assembled(store: FeatureStore, clock: ManualClock) -> list[Context]:
    """One fresh context, one that is not, and one that is refused."""
    made = declared(store)
    strict = context(store, freshness_sla="5m", freshness_strict=True, name="strict")(made.function)
    await visit(store)
    clock.advance("2s")
    contexts = [await made("u1")]
    clock.advance("6m")
    contexts.append(await made("u1"))
    with pytest.raises(FreshnessSLAError):
        await strict("u1")
    return contexts


async def test_contexts_are_counted_by_status_violation_and_age(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    def counts() -> list[float]:
        return [
            metric(STATUS, status="guaranteed"),
            metric(STATUS, status="degraded"),
            metric(VIOLATIONS, feature="plan"),
            metric(f"{STALEST}_count"),
            metric(f"{STALEST}_sum"),
            metric(f"{STALEST}_bucket", le="5.0"),
            metric(f"{STALEST}_bucket", le="900.0"),
        ]

    before = counts()
    await assembled(store, clock)
    grown = [after - earlier for earlier, after in zip(before, counts(), strict=True)]
    assert grown == pytest.approx([1, 1, 2, 2, 2 + 362, 1, 2])


async def test_many_at_once_are_judged_each_by_its_own(store: FeatureStore, user: type) -> None:
    made = declared(store)
    ids = [f"u{number}" for number in range(20)]
    for entity_id in ids[::2]:
        await store.publish("visit", entity_id, {"plan": "gold"})
    await store.drain()
    contexts = await asyncio.gather(*map(made, ids))
    assert [ctx.is_fresh for ctx in contexts] == [True, False] * 10
