"""The catalog in Redis and its copy in Postgres."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import msgspec
import pytest

from conformance.suite import until
from headwater import FeatureStore, ServiceEvent
from headwater.backends.redis.client import Redis, command
from headwater.backends.redis.keys import Keys
from headwater.declarations.runtime import runtime_of
from headwater.engine.engine import Engine
from headwater.errors import BackendError, BackendUnavailableError
from headwater.history import versions
from headwater.model.catalog import BackfillState, CatalogState
from headwater.settings.schema import Settings


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


def shop(settings: Settings) -> FeatureStore:
    """Return a store as a process with the renamed feature declares it."""
    store = FeatureStore(settings=settings)

    @store.entity
    class User:
        user_id: str

    @store.feature(User, trigger="buy")
    async def spend(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["amount"])

    return store


async def engine_of(store: FeatureStore) -> Engine:
    engine: Engine = await runtime_of(store).open()
    return engine


async def rename(state: FeatureStore) -> CatalogState:
    """Store the values of ``spend`` under the name ``total``, as if it had been renamed."""
    engine = await engine_of(state)
    feature = msgspec.structs.replace(engine.registry.feature("spend"), name="total")
    now = engine.clock.now()
    await engine.catalog.change(lambda state: versions.enter(state, [feature], now))
    return await engine.catalog.change(lambda state: versions.rename(state, "total", "spend", now))


async def lose(redis: Redis, keys: Keys) -> None:
    """Remove the store, its catalog and its values from Redis."""
    for key in [keys.meta, keys.catalog, *(part.entity + "User:u1" for part in keys.parts)]:
        await redis.call(command(key, "DEL", key))


async def test_a_catalog_that_redis_lost_is_restored_from_postgres_before_values_are(
    settings: Settings, redis: Redis, keys: Keys
) -> None:
    async with shop(settings) as store:
        await rename(store)
        await store.publish("buy", "u1", {"amount": 5})
        await store.drain()
        renamed = (await engine_of(store)).catalog.state
        (past,) = await store.get_feature_history("spend", "u1")
        assert past.value == 5
        await lose(redis, keys)
    async with shop(settings) as store:
        engine = await engine_of(store)
        assert engine.catalog.state == CatalogState()
        with pytest.raises(BackendUnavailableError, match="headwater rebuild --adopt"):
            await rename(store)
        await store.admin.rebuild(adopt=True)
        assert engine.catalog.state == renamed
        assert await store.get_feature("spend", "u1") == 5


async def test_a_process_that_has_the_store_open_keeps_its_names_while_the_catalog_is_lost(
    settings: Settings, redis: Redis, keys: Keys
) -> None:
    async with shop(settings) as store:
        renamed = await rename(store)
        await lose(redis, keys)
        assert (await (await engine_of(store)).catalog.follow()) == renamed


async def test_a_redis_that_is_new_takes_the_catalog_of_its_postgres(
    settings: Settings, redis: Redis, keys: Keys
) -> None:
    async with shop(settings) as store:
        renamed = await rename(store)
    await redis.call(command(keys.catalog, "DEL", keys.catalog))
    async with shop(settings) as store:
        assert (await engine_of(store)).catalog.state == renamed
        assert await (await engine_of(store)).backends.catalog.revision() == renamed.revision


async def test_a_version_that_was_being_filled_is_given_up_with_a_lost_catalog(
    settings: Settings, redis: Redis, keys: Keys
) -> None:
    async with shop(settings) as store:
        engine = await engine_of(store)
        feature, now = engine.registry.feature("spend"), engine.clock.now()
        backfill = BackfillState(id="1", group="backfill-1", main_group="main")

        def begin(state: CatalogState) -> CatalogState:
            entered = versions.enter(state, [feature], now)
            return versions.add_version(entered, feature, ["spend"], now, backfill)

        await engine.catalog.change(begin)
    await redis.call(command(keys.catalog, "DEL", keys.catalog))
    async with shop(settings) as store:
        (entry,) = (await engine_of(store)).catalog.state.features.values()
        assert [version.state for version in entry.versions] == ["active", "retired"]


async def test_a_copy_that_was_not_made_is_made_by_a_process_that_learns_of_the_change(
    settings: Settings,
) -> None:
    table = f'"{settings.postgres.schema}"._catalog'
    database = await asyncpg.connect(settings.postgres.url)
    async with shop(settings) as other, shop(settings) as store:
        await rename(other)
        await (await engine_of(store)).catalog.follow()
        engine = await engine_of(other)
        now = engine.clock.now()
        changed = await engine.catalog.change(
            lambda state: versions.rename(state, "spend", "paid", now)
        )
        await database.execute(f"DELETE FROM {table}")
        await (await engine_of(store)).catalog.follow()

        async def is_copied() -> bool:
            found: int | None = await database.fetchval(f"SELECT revision FROM {table}")
            return found == changed.revision

        await until(is_copied)
    await database.close()


@pytest.mark.parametrize("name", ["shard", "features"])
async def test_a_catalog_of_a_newer_version_is_refused_and_kept(
    settings: Settings, redis: Redis, keys: Keys, name: str
) -> None:
    async with shop(settings) as store:
        await rename(store)
        state = await redis.call(command(keys.catalog, "HGET", keys.catalog, "state"))
        newer = msgspec.json.encode(msgspec.json.decode(state) | {name: {"spend": {"x": 1}}})
        await redis.call(command(keys.catalog, "HSET", keys.catalog, "state", newer))
        with pytest.raises(BackendError, match=r"newer version of Headwater .* upgrade Headwater"):
            await rename(store)
    with pytest.raises(BackendError, match="newer version of Headwater"):
        await shop(settings).open()
    assert await redis.call(command(keys.catalog, "HGET", keys.catalog, "state")) == newer
