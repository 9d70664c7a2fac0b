"""Values that a feature reads through several other features."""

from __future__ import annotations

import asyncio

import pytest

from headwater import ContextItem, FeatureStore, ServiceEvent, context, feature
from headwater.core.clock import from_micros
from headwater.features.read_tracking import judged
from headwater.model.values import FeatureValue, TrackedFeature
from headwater.testing import ManualClock

LEVELS = 14
"""Enough for thousands of paths through the levels."""


def test_a_value_is_judged_once_regardless_of_the_number_of_paths_to_it() -> None:
    level: tuple[TrackedFeature, ...] = tuple(
        TrackedFeature("User", f"{side}0", "u1", FeatureValue(1, from_micros(5), "online"))
        for side in "ab"
    )
    for number in range(1, LEVELS):
        # Equal values, not the same objects: as they are after they were cached.
        level = tuple(
            TrackedFeature(
                *("User", f"{side}{number}", "u1"),
                FeatureValue([1], from_micros(5), "computed", rule="age", inputs=tuple(level)),
            )
            for side in "ab"
        )
    names = [read.feature for read, _ in judged(level[0])]
    assert len(names) == len(set(names)) == 2 * LEVELS - 1


async def test_a_diamond_of_features_has_each_input_once(store: FeatureStore, user: type) -> None:
    @feature(entity=user, name="a0")
    def first(user_id: str) -> int:
        return 1

    @feature(entity=user, name="b0")
    def second(user_id: str) -> int:
        return 2

    def declare(name: str, below: list[str]) -> None:
        @feature(entity=user, name=name)
        async def computed(user_id: str) -> int:
            reads = (store.get_feature(each, user_id) for each in below)
            return int(sum(await asyncio.gather(*reads)))

    for number in range(1, 6):
        for side in "ab":
            declare(f"{side}{number}", [f"a{number - 1}", f"b{number - 1}"])

    @context(store, freshness_sla="5m")
    def made(user_id: str) -> ContextItem:
        return ContextItem.template("{a5}")

    (read,) = (await made("u1")).lineage.features
    assert sorted(each.feature for each in read.inputs) == sorted(
        f"{side}{number}" for side in "ab" for number in range(5)
    )


@pytest.mark.both_environments
async def test_an_input_with_two_slas_has_an_entry_for_each_as_the_violation_says(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="look")
    def seen(user_id: str, event: ServiceEvent) -> int:
        return 1

    @feature(entity=user, freshness_sla="1d")
    async def relaxed(user_id: str) -> int:
        return int(await store.get_feature("seen", user_id))

    @feature(entity=user, freshness_sla="1m")
    async def urgent(user_id: str) -> int:
        return int(await store.get_feature("seen", user_id))

    @feature(entity=user)
    async def both(user_id: str) -> int:
        first: int = await store.get_feature("relaxed", user_id)
        return first + int(await store.get_feature("urgent", user_id))

    @context(store, freshness_sla="5m")
    def made(user_id: str) -> ContextItem:
        return ContextItem.template("{both}")

    await store.publish("look", "u1", {})
    await store.drain()
    clock.advance("10m")
    ctx = await made("u1")
    (violation,) = ctx.freshness_violations
    assert (violation.name, violation.sla_ms) == ("seen", 60_000)
    (read,) = ctx.lineage.features
    entries = [(i.sla_ms, i.fresh) for i in read.inputs if i.feature == "seen"]
    assert entries == [(86_400_000, True), (60_000, False)]


async def test_two_computed_values_of_one_feature_are_two_inputs(
    store: FeatureStore, user: type
) -> None:
    values = iter(range(10))

    @feature(entity=user)
    def counter(user_id: str) -> int:
        return next(values)

    @feature(entity=user)
    async def left(user_id: str) -> int:
        return int(await store.get_feature("counter", user_id))

    @feature(entity=user)
    async def both(user_id: str) -> int:
        first: int = await store.get_feature("left", user_id)
        return first + int(await store.get_feature("counter", user_id))

    @context(store)
    def made(user_id: str) -> ContextItem:
        return ContextItem.template("{both}")

    (read,) = (await made("u1")).lineage.features
    assert sorted(i.value for i in read.inputs if i.feature == "counter") == [0, 1]
