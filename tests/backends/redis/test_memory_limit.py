"""Redis at its memory limit: publishing is refused, processing continues."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count

import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.backends.redis.client import Redis, command
from headwater.declarations.runtime import runtime_of
from headwater.errors import BackendError
from headwater.settings.schema import Settings
from tests.servers import valkey_node

USERS = 100
LIMIT = "12mb"


def shop(settings: Settings) -> FeatureStore:
    store = FeatureStore(settings=settings)

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> int:
        return int(await store.get_feature("total", user_id) or 0) + 1

    return store


async def fill(store: FeatureStore) -> int:
    """Publish events of each user until one is refused; return how many were accepted."""
    for rounds in count():
        events = [ServiceEvent("buy", f"u{n}", {"pad": "y" * 1_000}) for n in range(USERS)]
        try:
            await store.bus.publish_many(events, dedup=False)
        except BackendError as error:
            if "out of memory" not in str(error):
                raise
            return rounds
    raise AssertionError


@pytest.fixture
async def full(production: Settings) -> AsyncIterator[tuple[FeatureStore, int]]:
    """A store whose Redis accepts no more events, and the number of accepted ones per user."""
    with valkey_node() as port:
        url = f"redis://127.0.0.1:{port}/0"
        redis = Redis(url, timeout=60, connect_timeout=60)
        await redis.open()
        store = shop(production.replace(redis={"url": url}, partitions=4))
        await store.open()
        await redis.call(command("k", "CONFIG", "SET", "maxmemory", LIMIT))
        yield store, await fill(store)
        await store.close()
        await redis.close()


async def test_waiting_events_are_handled_and_trimmed_and_then_there_is_room_again(
    full: tuple[FeatureStore, int],
) -> None:
    store, taken = full
    await store.drain()
    await (await runtime_of(store).open()).backends.offline.maintain()
    await store.publish("buy", "u0", {})
    await store.drain()
    values = await store.get_features(["total"], [f"u{n}" for n in range(USERS)])
    assert [row["total"] for row in values.values()] == [taken + 1] + [taken] * (USERS - 1)


async def test_a_process_that_starts_then_can_process_waiting_events(
    full: tuple[FeatureStore, int],
) -> None:
    full_store, _ = full
    async with shop(full_store.settings) as store:
        assert sum(lag.waiting for lag in await store.admin.lag()) > 0
        await store.drain()
        assert sum(lag.waiting for lag in await store.admin.lag()) == 0
