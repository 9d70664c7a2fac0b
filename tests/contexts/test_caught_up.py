"""Freshness by what still waits for a value, and the SLA of a single feature."""

from __future__ import annotations

from contextlib import AsyncExitStack
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
    entity,
    feature,
    retriever,
)
from headwater.declarations.contexts import ContextFunction
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.contexts.support import recorded
from tests.engine.support import metric

pytestmark = pytest.mark.both_environments


@pytest.fixture
def user(store: FeatureStore) -> type:
    """An entity with triggered features of both rules, and features composed from them."""

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="order", default=0, freshness="caught_up")
    async def orders(user_id: str, event: ServiceEvent) -> int:
        return int(await store.get_feature("orders", user_id)) + 1

    @feature(entity=User, trigger="order", freshness="caught_up")
    async def last_order(user_id: str, event: ServiceEvent) -> str:
        return str(event.payload["what"])

    @feature(entity=User, trigger="order")
    async def aged(user_id: str, event: ServiceEvent) -> int:
        return 1

    @feature(entity=User)
    async def tier(user_id: str) -> str:
        return "gold" if await store.get_feature("orders", user_id) else "new"

    @feature(entity=User, template="{tier} customer, {orders} orders")
    def blurb(user_id: str) -> str: ...  # type: ignore[empty-body]

    return User


def telling(store: FeatureStore, text: str, **options: Any) -> ContextFunction[[str]]:
    @context(store, **{"freshness_sla": "5m", **options})
    async def telling(user_id: str) -> ContextItem:
        return ContextItem.template(text)

    return telling


async def order(store: FeatureStore, user_id: str = "u1") -> None:
    await store.publish("order", user_id, {"what": "shoes"})


def violations(ctx: Context) -> list[tuple[str, str]]:
    return [(violation.name, violation.reason) for violation in ctx.freshness_violations]


async def test_a_customer_who_is_quiet_for_a_day_stays_guaranteed(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    made = telling(store, "{orders} {last_order} {blurb}", freshness_strict=True)
    await order(store)
    await store.drain()
    clock.advance("1d")
    ctx = await made("u1")
    assert (ctx.content, ctx.freshness_status) == (
        "1 shoes gold customer, 1 orders",
        "guaranteed",
    )
    assert [(read.feature, read.rule, read.age_ms) for read in ctx.lineage.features] == [
        ("blurb", "inputs", 0),
        ("last_order", "caught_up", 0),
        ("orders", "caught_up", 0),
    ]
    assert ctx.lineage.stalest_ms == 0
    assert ctx.lineage.features[1].as_of == clock.now() - timedelta(days=1)


async def test_the_age_rule_is_the_default(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    await order(store)
    await store.drain()
    clock.advance("1d")
    ctx = await telling(store, "{aged} {orders}")("u1")
    assert violations(ctx) == [("aged", "stale")]
    assert [(read.feature, read.rule) for read in ctx.lineage.features] == [
        ("aged", "age"),
        ("orders", "caught_up"),
    ]


async def test_a_value_is_as_old_as_the_oldest_event_that_waits(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    made = telling(store, "{blurb}")
    await order(store)
    await store.drain()
    await order(store)
    assert (await made("u1")).freshness_status == "guaranteed"
    clock.advance("1h")
    await order(store)
    behind = await made("u1")
    assert violations(behind) == [("orders", "stale")]
    (violation,) = behind.freshness_violations
    assert violation.used_by == "blurb"
    # The event was accepted before the hour began; servers measure that by their own clock.
    assert violation.age_ms is not None
    assert violation.age_ms >= 3_500_000
    await store.drain()
    assert (await made("u1")).freshness_status == "guaranteed"


async def test_events_of_other_partitions_do_not_count(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    made = telling(store, "{orders}")
    for number in range(40):
        await order(store, f"u{number}")
    await store.drain()
    await order(store, "u7")
    clock.advance("1h")
    stale = {f"u{n}" for n in range(40) if violations(await made(f"u{n}"))}
    assert "u7" in stale
    assert len(stale) < 20


async def test_a_default_is_a_fact_and_counts_as_fresh(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    ctx = await telling(store, "{orders} {blurb}", freshness_strict=True)("unknown")
    assert (ctx.content, ctx.freshness_status) == ("0 new customer, 0 orders", "guaranteed")
    sources = {read.feature: read.source for read in ctx.lineage.features}
    assert sources == {"orders": "default", "blurb": "computed"}


async def test_a_default_is_as_old_as_the_first_event_that_waits(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    await order(store)
    clock.advance("1h")
    assert violations(await telling(store, "{orders}")("u1")) == [("orders", "stale")]


async def test_a_missing_value_is_a_violation(store: FeatureStore, user: type) -> None:
    ctx = await telling(store, "{last_order}")("unknown")
    assert violations(ctx) == [("last_order", "missing")]


async def test_a_scheduled_value_is_as_old_as_its_last_successful_run(
    store: FeatureStore, clock: ManualClock
) -> None:
    @entity(store)
    class User:
        user_id: str

    works = True

    @feature(entity=User, trigger="order")
    async def seen(user_id: str, event: ServiceEvent) -> bool:
        return True

    @feature(entity=User, refresh="10m", materialize=True, default=0, freshness="caught_up")
    async def score(user_id: str) -> int:
        if not works:
            raise ValueError("no")
        return 7

    made = telling(store, "{score}")
    await order(store)
    await store.drain()
    assert violations(await made("u1")) == [("score", "never_ran")]  # a default
    clock.advance("10m")
    await store.drain()
    ctx = await made("u1")
    assert (ctx.content, ctx.freshness_status) == ("7", "guaranteed")
    (read,) = ctx.lineage.features
    assert (read.rule, read.current_at) == ("caught_up", read.written_at)
    works = False
    clock.advance("10m")
    await store.drain()
    assert violations(await made("u1")) == [("score", "stale")]


async def test_the_sla_of_a_feature_replaces_that_of_the_context(
    store: FeatureStore, clock: ManualClock
) -> None:
    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="order", freshness_sla="1d")
    async def slow(user_id: str, event: ServiceEvent) -> int:
        return 1

    @feature(entity=User, trigger="order", freshness_sla="1m")
    async def quick(user_id: str, event: ServiceEvent) -> int:
        return 1

    @feature(entity=User, trigger="order")
    async def other(user_id: str, event: ServiceEvent) -> int:
        return 1

    @feature(entity=User, template="{slow}{other}", freshness_sla="1h")
    def both(user_id: str) -> str: ...  # type: ignore[empty-body]

    made = telling(store, "{slow} {quick} {both}")
    await order(store)
    await store.drain()
    clock.advance("2m")
    (violation,) = (await made("u1")).freshness_violations
    assert (violation.name, violation.sla_ms) == ("quick", 60_000)
    clock.advance("1h")
    ctx = await made("u1")
    assert [(v.name, v.sla_ms, v.used_by) for v in ctx.freshness_violations] == [
        ("other", 3_600_000, "both"),
        ("quick", 60_000, None),
    ]
    core = await recorded(store, ctx)
    assert [(read.feature, read.sla_ms) for read in core.features] == [
        ("both", 3_600_000),
        ("quick", 60_000),
        ("slow", 86_400_000),
    ]
    assert [(each.feature, each.sla_ms) for each in core.features[0].inputs] == [
        ("slow", 86_400_000),
        ("other", 3_600_000),
    ]
    unlimited = telling(store, "{quick}", freshness_sla=None, name="unlimited")
    assert violations(await unlimited("u1")) == [("quick", "stale")]


async def test_lineage_goes_through_composed_features(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    made = telling(store, "{blurb}")
    await order(store)
    await store.drain()
    clock.advance("1h")
    ctx = await made("u1")
    (blurb,) = ctx.lineage.features
    assert (blurb.value, blurb.source, blurb.rule) == (
        "gold customer, 1 orders",
        "computed",
        "inputs",
    )
    assert [(each.feature, each.value, each.rule) for each in blurb.inputs] == [
        ("tier", "gold", "inputs"),
        ("orders", 1, "caught_up"),
    ]
    tier, orders = blurb.inputs
    assert tier.as_of == orders.as_of == clock.now() - timedelta(hours=1)
    assert orders.entity_id == "u1"
    past = await store.get_context_at(ctx.context_id)
    assert past.lineage == ctx.lineage
    assert (await store.records.explain(ctx.context_id)).features == ctx.lineage.features
    assert (await store.records.verify(ctx.context_id)).ok


async def test_the_inputs_of_a_cached_value_are_those_it_was_computed_from(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, ttl="1h")
    async def summary(user_id: str) -> str:
        return f"{await store.get_feature('tier', user_id)}!"

    made = telling(store, "{summary}")
    await order(store)
    await store.drain()
    assert (await made("u1")).freshness_status == "guaranteed"
    clock.advance("10m")
    await order(store)
    await store.drain()
    cached = await made("u1")
    (read,) = cached.lineage.features
    assert (read.value, read.source, read.rule) == ("gold!", "online", "inputs")
    inputs = [(each.feature, each.value, each.age_ms) for each in read.inputs]
    assert inputs == [("tier", "gold", 600_000), ("orders", 1, 600_000)]
    assert violations(cached) == [("orders", "stale")]


async def test_the_metric_names_the_input_that_is_old(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, template="{aged} and {orders}")
    def mixed(user_id: str) -> str: ...  # type: ignore[empty-body]

    name = "headwater_context_freshness_violations_total"
    made = telling(store, "{mixed}", freshness_strict=True)
    await order(store)
    await store.drain()
    clock.advance("1d")
    before = metric(name, feature="aged")
    with pytest.raises(FreshnessSLAError, match="feature 'aged' is stale") as caught:
        await made("u1")
    assert [(v.name, v.used_by) for v in caught.value.violations] == [("aged", "mixed")]
    assert metric(name, feature="aged") == before + 1
    assert metric(name, feature="mixed") == 0


async def test_contexts_and_searches_inside_follow_the_rules_of_their_features(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @retriever(store)
    async def search(user_id: str) -> list[str]:
        return [str(await store.get_feature("orders", user_id))]

    inner = telling(store, "{orders}", freshness_sla=None, name="inner")

    @context(store, freshness_sla="5m", freshness_strict=True)
    async def outer(user_id: str) -> list[ContextItem]:
        found = [ContextItem(chunk.text, source=chunk) for chunk in await search(user_id)]
        return [*found, ContextItem(str(await inner(user_id)))]

    await order(store)
    await store.drain()
    clock.advance("1d")
    assert (await outer("u1")).freshness_status == "guaranteed"
    await order(store)
    clock.advance("1h")
    with pytest.raises(FreshnessSLAError) as caught:
        await outer("u1")
    named = {(v.kind, v.name) for v in caught.value.violations}
    assert named == {("feature", "orders"), ("retrieval", "search"), ("context", "inner")}


async def test_a_replay_as_of_then_judges_freshness_as_it_was(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    made = telling(store, "{blurb}", freshness_strict=True)
    await order(store)
    await store.drain()
    clock.advance("1d")
    ctx = await made("u1")
    await order(store)
    clock.advance("1d")
    again = await store.replay(ctx.context_id, "as_of")
    assert (again.content, again.matches) == (ctx.content, True)
    assert again.context is not None
    assert again.context.freshness_status == "guaranteed"


async def test_a_handler_that_assembles_a_context_is_behind_by_the_event_it_handles(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    made = telling(store, "{orders}")
    told: list[Context] = []

    @feature(entity=user, trigger="tell")
    async def tell(user_id: str, event: ServiceEvent) -> None:
        told.append(await made(user_id))

    await order(store)
    await store.drain()
    await store.publish("tell", "u1")
    await store.drain()
    await store.publish("tell", "u1")
    clock.advance("1h")
    await store.drain()
    assert [ctx.freshness_status for ctx in told] == ["guaranteed", "degraded"]


async def test_events_wait_for_the_consumer_group_of_the_reader(
    settings: Settings, clock: ManualClock
) -> None:
    async with AsyncExitStack() as closing:
        one, two = [
            FeatureStore(settings=settings.replace(worker={"consumer_group": name}), clock=clock)
            for name in ("one", "two")
        ]
        made = {}
        for store in (one, two):
            closing.push_async_callback(store.close)

            @entity(store)
            class User:
                user_id: str

            @feature(entity=User, trigger="order", default=0, freshness="caught_up")
            async def orders(user_id: str, event: ServiceEvent) -> int:
                return 1

            made[store] = telling(store, "{orders}")
        for store in (one, two):
            await store.drain()  # from the first event on, both run the feature
        await order(one)
        await one.drain()
        clock.advance("1h")
        assert violations(await made[one]("u1")) == []
        assert violations(await made[two]("u1")) == [("orders", "stale")]
        await two.drain()
        assert violations(await made[two]("u1")) == []
