"""How to test features: as plain functions, with events, and with a clock that you control.

`temporary` moves a store with its declarations into an empty folder during a test. `drain` handles
all waiting events. The time of a ManualClock changes only when you advance it.

    python examples/testing_features.py    run the tests below
    pytest examples/testing_features.py    run them with pytest-asyncio in auto mode
"""

import asyncio

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.testing import ManualClock, temporary

store = FeatureStore()


@entity(store)
class User:
    user_id: str


@feature(entity=User, trigger="login", default=0)
async def logins(user_id: str, event: ServiceEvent) -> int:
    before: int = await store.get_feature("logins", user_id)
    return before + int(event.payload.get("count", 1))


@feature(entity=User, trigger="login", ttl="30m")
def device(user_id: str, event: ServiceEvent) -> str:
    """The device in use; unknown after half an hour without a login."""
    return str(event.payload["device"])


def test_a_handler_is_a_plain_function() -> None:
    assert device("ada", ServiceEvent("login", "ada", {"device": "phone"})) == "phone"


async def test_events_add_up() -> None:
    async with temporary(store):
        for _ in range(3):
            await store.publish("login", "ada", {"device": "phone"})
        await store.drain()
        assert await store.get_feature("logins", "ada") == 3


async def test_a_value_ends_with_its_time_to_live() -> None:
    clock = ManualClock()
    async with temporary(store, clock=clock):
        await store.publish("login", "ada", {"device": "phone"})
        await store.drain()
        clock.advance("29m")
        assert await store.get_feature("device", "ada") == "phone"
        clock.advance("2m")
        assert await store.get_feature("device", "ada") is None


if __name__ == "__main__":
    test_a_handler_is_a_plain_function()
    asyncio.run(test_events_add_up())
    asyncio.run(test_a_value_ends_with_its_time_to_live())
    print("3 tests passed")
