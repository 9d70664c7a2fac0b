"""Freshness: everything that is older than the SLA, or has no age, is a violation."""

from __future__ import annotations

import asyncio
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
)
from headwater.testing import ManualClock
from tests.contexts.plans import declared, visit
from tests.contexts.support import recorded
from tests.engine.support import metric, records

STATUS = "headwater_context_freshness_status_total"


VIOLATIONS = "headwater_context_freshness_violations_total"


STALEST = "headwater_context_stalest_feature_seconds"


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
