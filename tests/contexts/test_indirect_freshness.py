"""Freshness: searches, inner contexts and dropped items do not hide old values."""

from __future__ import annotations

from datetime import timedelta

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
from headwater.declarations.contexts import ContextFunction
from headwater.errors import LooserOverrideError
from headwater.testing import ManualClock
from tests.contexts.plans import declared, visit


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


@pytest.mark.parametrize("sla", ["1d", None])
@pytest.mark.parametrize("is_earlier", [False, True])
async def test_a_value_beyond_its_own_sla_degrades_all_contexts_around_it(
    store: FeatureStore, user: type, clock: ManualClock, *, sla: str | None, is_earlier: bool
) -> None:
    @feature(entity=user, trigger="moved", freshness_sla="5m")
    def place(user_id: str, event: ServiceEvent) -> str:
        return "here"

    @context(store, freshness_sla="2h")
    async def inner(user_id: str) -> ContextItem:
        return ContextItem.template("{place}")

    @context(store, freshness_sla=sla)
    async def middle(user_id: str) -> str:
        return str(await inner(user_id))

    made: list[Context] = []

    @context(store, freshness_sla=sla)
    async def outer(user_id: str) -> ContextItem:
        source = made[-1] if is_earlier else await middle(user_id)
        return ContextItem(str(source), source=source)

    await store.publish("moved", "u1")
    await store.drain()
    made.append(await middle("u1"))
    assert (await outer("u1")).is_fresh
    clock.advance("6m")
    made.append(await middle("u1"))
    ctx = await outer("u1")
    (violation,) = ctx.freshness_violations
    assert (violation.kind, violation.name, violation.reason) == ("context", "middle", "stale")
    assert (violation.age_ms, violation.sla_ms) == (360_000, 300_000)
    clock.advance("3h")
    await store.publish("moved", "u1")
    await store.drain()
    made.append(await middle("u1"))
    assert (await outer("u1")).is_fresh


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
