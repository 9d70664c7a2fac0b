"""Erasures on servers: Postgres and Redis know them, so neither brings an erased entity back."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from headwater import FeatureStore, ServiceEvent, feature
from headwater.backends.redis.client import Redis, command
from headwater.backends.redis.keys import Keys
from headwater.declarations.runtime import runtime_of
from headwater.errors import EventConflictError
from headwater.settings.schema import Settings
from tests.engine.support import past


@pytest.fixture
async def redis(settings: Settings) -> AsyncIterator[Redis]:
    """A connection for the test."""
    client = Redis(settings.redis.url, timeout=60, connect_timeout=60)
    await client.open()
    yield client
    await client.close()


@pytest.fixture
def keys(settings: Settings) -> Keys:
    return Keys(settings.redis.prefix, settings.partitions, settings.worker.consumer_group)


@pytest.fixture
async def shop(store: FeatureStore, user: type) -> FeatureStore:
    """A store with a value of two users, which is in Postgres as well."""

    @feature(entity=user, trigger="buy", default=0)
    async def bought(user_id: str, event: ServiceEvent) -> int:
        return int(await store.get_feature("bought", user_id)) + 1

    for user_id in ("ada", "bob"):
        await store.publish("buy", user_id)
    await store.drain()
    await (await runtime_of(store).open()).backends.offline.maintain()
    return store


async def _lose_erasures(redis: Redis, keys: Keys) -> None:
    """Remove the store and its erasures, as a loss of data or an older copy does."""
    for key in (keys.meta, keys.erasures, *(part.erasures for part in keys.parts)):
        await redis.call(command(key, "DEL", key))


async def test_a_redis_that_lost_its_data_gets_the_erasures_back(
    shop: FeatureStore, redis: Redis, keys: Keys
) -> None:
    await shop.admin.forget("User", "ada", reason="request 12")
    await _lose_erasures(redis, keys)
    await shop.close()  # so that no process remembers
    await shop.admin.rebuild(adopt=True)
    with pytest.raises(EventConflictError, match="erased"):
        await shop.publish("buy", "ada")
    assert await shop.get_feature("bought", "bob") == 1


async def test_a_rebuild_removes_what_an_older_copy_of_redis_has_of_an_erased_entity(
    shop: FeatureStore, redis: Redis, keys: Keys
) -> None:
    part = keys.of("ada")
    key, ids = part.state(("User", "ada")), f"{part.ids}User"
    state = await redis.call(command(key, "GET", key))
    await shop.admin.forget("User", "ada", reason="request 12", allow_return=True)
    await _lose_erasures(redis, keys)
    await redis.call(command(key, "SET", key, state))
    await redis.call(command(ids, "ZADD", ids, 0, "ada"))
    await shop.close()
    await shop.admin.rebuild(adopt=True)
    assert await shop.get_feature("bought", "ada") == 0
    assert await redis.call(command(ids, "ZSCORE", ids, "ada")) is None
    await shop.publish("buy", "ada")
    await shop.drain()
    assert await past(shop, "bought", "ada") == [1]


async def test_an_erasure_that_redis_does_not_know_yet_is_completed_by_the_next(
    shop: FeatureStore, redis: Redis, keys: Keys
) -> None:
    await shop.admin.forget("User", "ada", reason="request 12")
    # As if the process had died after Postgres had the erasure.
    for key in (keys.erasures, *(part.erasures for part in keys.parts)):
        await redis.call(command(key, "DEL", key))
    await shop.close()
    await shop.admin.forget("User", "bob", reason="request 13")
    other = await redis.call(command(keys.erasures, "HGET", keys.erasures, "last"))
    assert int(other) == 2
    for user_id in ("ada", "bob"):
        with pytest.raises(EventConflictError, match="erased"):
            await shop.publish("buy", user_id)
