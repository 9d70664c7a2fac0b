"""On-demand values that were computed from a default are stored like all others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from headwater import (
    ContextItem,
    FeatureStore,
    FeatureValue,
    ServiceEvent,
    context,
    entity,
    feature,
)
from headwater.settings.schema import Settings
from headwater.testing import ManualClock

pytestmark = pytest.mark.both_environments


class Shop:
    """A store in which values are computed from a total, and how often they were."""

    def __init__(self, settings: Settings, clock: ManualClock) -> None:
        self.calls = 0
        self.store = store = FeatureStore(settings=settings, clock=clock)

        @entity(store)
        class User:
            user_id: str

        @feature(entity=User, trigger="buy", default=0)
        async def total(user_id: str, event: ServiceEvent) -> int:
            return int(await store.get_feature("total", user_id)) + 1

        async def compute(user_id: str) -> str:
            self.calls += 1
            return f"{await store.get_feature('total', user_id)} at {store.clock.now():%H:%M}"

        @feature(entity=User, ttl="10m")
        async def cached(user_id: str) -> str:
            return await compute(user_id)

        @feature(entity=User, refresh="1h")
        async def lazy(user_id: str) -> str:
            return await compute(user_id)

        @context(store, freshness_sla="5m")
        async def page(user_id: str) -> list[ContextItem]:
            return [ContextItem(str(await store.get_feature("cached", user_id)))]

        self.page = page

    async def value(self, name: str) -> FeatureValue:
        (row,) = await self.store.get_feature_values([name], ["u1"])
        return row[name]


@pytest.fixture
async def shop(settings: Settings, clock: ManualClock) -> AsyncIterator[Shop]:
    shop = Shop(settings, clock)
    async with shop.store:
        yield shop


@pytest.mark.parametrize("name", ["cached", "lazy"])
async def test_what_was_served_is_what_training_gets(
    shop: Shop, clock: ManualClock, name: str
) -> None:
    clock.advance("1m")
    served = await shop.value(name)
    clock.advance("1m")
    again = await shop.value(name)
    assert (again.value, shop.calls) == (served.value, 1)
    assert (served.as_of, again.as_of) == (None, None)
    assert (served.source, again.source) == ("computed", "online")
    clock.advance("1m")
    now = clock.now()
    minutes: list[dict[str, Any]] = [
        {"user_id": "u1", "timestamp": now - timedelta(minutes=n)} for n in (3, 2, 1, 0)
    ]
    rows = await shop.store.get_historical_features(minutes, [name], with_as_of=True)
    assert [row[name] for row in rows] == [None, served.value, served.value, served.value]
    assert [row[f"{name}__as_of"] for row in rows] == [None] * 4


async def test_the_ttl_of_such_a_value_counts_from_its_computation(
    shop: Shop, clock: ManualClock
) -> None:
    first = await shop.value("cached")
    clock.advance("10m")
    second = await shop.value("cached")
    assert (first.value != second.value, shop.calls) == (True, 2)


async def test_values_that_follow_replace_it_also_if_their_inputs_are_older(
    shop: Shop, clock: ManualClock
) -> None:
    served: list[dict[str, Any]] = []

    async def serve() -> None:
        clock.advance("1s")
        value = (await shop.value("cached")).value
        served.append({"user_id": "u1", "timestamp": clock.now(), "cached": value})
        clock.advance("11m")

    await serve()
    await shop.store.publish("buy", "u1", timestamp=clock.now() - timedelta(hours=2))
    await shop.store.drain()
    await serve()
    await serve()
    assert [row["cached"][0] for row in served] == ["0", "1", "1"]
    frame = [{"user_id": row["user_id"], "timestamp": row["timestamp"]} for row in served]
    assert await shop.store.get_historical_features(frame, ["cached"], known=True) == served


async def test_its_freshness_stays_a_violation_also_for_other_processes(
    shop: Shop, settings: Settings, clock: ManualClock
) -> None:
    first = await shop.page("u1")
    other = Shop(settings, clock)
    async with other.store:
        second = await other.page("u1")
    assert (shop.calls, other.calls) == (1, 0)
    for ctx in (first, second):
        (violation,) = ctx.freshness_violations
        assert (violation.name, violation.reason, violation.used_by) == (
            "total",
            "default",
            "cached",
        )
        (read,) = ctx.lineage.features
        assert read.as_of is None
        assert (await shop.store.records.verify(ctx.context_id)).ok
    served = (await shop.store.admin.audit()).served
    assert (served.differences, served.not_compared) == ([], {})
