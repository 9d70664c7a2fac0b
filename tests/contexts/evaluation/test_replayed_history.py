"""Values of other features, replayed from stored events, against a world that lived with them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from tests.contexts.evaluation.worlds import World

pytestmark = pytest.mark.both_environments


def declare(store: FeatureStore, factor: int) -> type:
    """Declare the features of the tests; the edit is another factor."""

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

    return User


async def test_a_changed_handler_has_the_values_of_a_world_that_lived_with_it(
    world: World,
) -> None:
    for store, factor in ((world.former, 1), (world.truth, 3), (world.edited, 3)):
        declare(store, factor)
    for number in range(4):
        await world.publish(
            ("order", "u1", {"amount": number}),
            ("visit", "u2", {}),
            ("order", "u2", {"amount": 2 * number}),
            ("visit", "u1", {}),
        )
        world.wait(timedelta(minutes=1))
    replay = await world.assert_same(["spent", "mean"], ["u1", "u2", "u3"], ["spent", "mean"])
    assert replay.history.notes("mean", "u1") == []
