"""Values of other features, replayed from stored events, against a world that lived with them."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from tests.contexts.evaluation.worlds import World

pytestmark = pytest.mark.both_environments


NAMES = ["spent", "mean", "latest", "tier", "rank", "spend", "busy", "friend", "flaky", "graded"]
READ = [
    *("spent", "mean", "latest", "tier", "busy", "friend", "flaky", "graded", "risk"),
    *("spend_sum_1h", "spend_count_7d", "spend_last3_7d"),
]
IDS = ["u1", "u2", "u3"]


def declare(store: FeatureStore, factor: int) -> None:
    """Declare features that read and write in many ways; the edit is another factor."""

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger=["order", "visit"], default=0)
    async def visits(user_id: str, event: ServiceEvent) -> int:
        return int(await store.get_feature("visits", user_id)) + 1

    @feature(entity=User, trigger="order", default=0)
    async def spent(user_id: str, event: ServiceEvent) -> int:
        before = await store.get_feature("spent", user_id)
        return int(before) + factor * int(event.payload["amount"])

    @feature(entity=User, trigger="order", default=0)
    def mean(user_id: str, event: ServiceEvent) -> int:
        spent, visits = (store.sync.get_feature(name, user_id) for name in ("spent", "visits"))
        return int(spent) * 100 + int(visits)

    declare_writers(store, User, factor)
    declare_readers(store, User, factor)


def declare_writers(store: FeatureStore, user: type, factor: int) -> None:
    """Declare features that write other features, late values and contributions."""

    @feature(entity=user, trigger="order", order="event_time")
    async def latest(user_id: str, event: ServiceEvent) -> int:
        return factor * int(event.payload["amount"])

    tier = store.stored_feature("tier", str, entity=user, default="none")

    @feature(entity=user, trigger="order")
    async def rank(user_id: str, event: ServiceEvent) -> None:
        if event.payload["amount"] % 2 == factor % 2:
            await tier.set(user_id, f"{await tier.get(user_id)}{event.payload['amount']}"[-9:])

    @feature(
        entity=user, trigger="order", window=["1h", "7d"], aggregate=["sum", "count", "last(3)"]
    )
    def spend(user_id: str, event: ServiceEvent) -> float | None:
        amount = float(event.payload["amount"])
        return None if amount == factor else factor * amount


def declare_readers(store: FeatureStore, user: type, factor: int) -> None:
    """Declare features that read windows, other entities and computed features, or fail."""

    async def read(names: list[str], user_id: str) -> dict[str, Any]:
        return (await store.get_features(names, [user_id]))[user_id]

    @feature(entity=user, trigger=["visit", "order"])
    async def busy(user_id: str, event: ServiceEvent) -> str:
        values = await read(["spend_sum_1h", "spend_count_7d"], user_id)
        return f"{values['spend_sum_1h']} {values['spend_count_7d']} {store.clock.now():%H:%M:%S}"

    @feature(entity=user, trigger="poke", default="")
    async def friend(user_id: str, event: ServiceEvent) -> str:
        other = str(event.payload["of"])
        names = ["spent", "visits", "friend", "spend_count_7d", "risk"]
        values = await read(names, other)
        return f"{await store.get_feature('tier', user_id)} {[*values.values()]}"[-60:]

    @feature(entity=user, trigger="order", max_retries=0, default=0)
    async def flaky(user_id: str, event: ServiceEvent) -> int:
        if event.payload["amount"] % 3 == factor % 3:
            raise ValueError("no")
        return int(await store.get_feature("flaky", user_id)) + 1

    @feature(entity=user)
    async def risk(user_id: str) -> str:
        values = await read(["spent", "visits"], user_id)
        return f"risk {[*values.values()]}"

    @feature(entity=user, trigger="visit", ttl="90s", default="")
    async def graded(user_id: str, event: ServiceEvent) -> str:
        before = await store.get_feature("graded", user_id)
        return f"{await store.get_feature('risk', user_id)} {before}"[:50]


async def live_at_random(world: World, seed: int, rounds: int = 12) -> None:
    """Let random events and writes happen."""
    chance = random.Random(seed)
    for _ in range(rounds):
        for _ in range(chance.randrange(1, 4)):
            late = chance.choice([0, 0, 0, 5, 4_000, 90_000])
            kind, of = chance.choice(["order", "order", "visit"]), chance.choice(IDS)
            payload = {"amount": chance.randrange(9)}
            await world.publish((kind, of, payload), late=timedelta(seconds=late))
        if chance.random() < 0.8:
            await world.drain(READ, IDS)
        if chance.random() < 0.5:
            await world.drain(READ, IDS)  # or the order of two entities would be by chance
            one, other = chance.sample(IDS, 2)
            await world.publish(("poke", one, {"of": other}))
            await world.drain(READ, IDS)
        if chance.random() < 0.3:
            name, value = chance.choice([("spent", 1_000), ("tier", "set"), ("latest", 7)])
            await world.set(name, chance.choice(IDS), value)
        world.wait(timedelta(seconds=chance.choice([0, 1, 60, 3_000])))
    await world.drain(READ, IDS)


@pytest.mark.parametrize("seed", range(6))
async def test_replayed_features_have_the_values_of_a_world_that_lived_with_them(
    world: World, seed: int
) -> None:
    for store, factor in ((world.former, 1), (world.truth, 2), (world.edited, 2)):
        declare(store, factor)
    await live_at_random(world, seed)
    replay = await world.assert_same(NAMES, NAMES, READ, IDS)
    for name in NAMES:
        assert [replay.history.notes(name, of) for of in IDS] == [[], [], []]
