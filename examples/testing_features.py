"""How to test features: the functions alone, with events, and with time passing.

`temporary` moves a store and everything declared on it into an empty folder for the length of a
test; `drain` handles every event that waits; a ManualClock stands until you move it.

    python examples/testing_features.py    run the tests below
    pytest examples/testing_features.py    the same, with pytest-asyncio in its auto mode
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
    """The device in use; after half an hour nobody knows."""
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
