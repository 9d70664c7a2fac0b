"""A store that lost Redis takes from the topic what history does not have, and nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.backends.kafka.address import parse_url
from headwater.backends.kafka.client import TopicConsumer
from headwater.backends.kafka.environment import group_of
from headwater.backends.kafka.feeder import KafkaFeeder
from headwater.backends.redis.client import Redis, command
from headwater.declarations.runtime import runtime_of
from headwater.engine.worker.worker import Worker
from headwater.settings.schema import Settings
from tests.engine.support import until
from tests.kafka import PARTITIONS, Brokers, on_kafka
from tests.schemas import Schemas

USERS = [f"u{number}" for number in range(12)]


@pytest.fixture
def settings(production: Settings, kafka: Brokers) -> Settings:
    return on_kafka(production, kafka.new_topic())


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[FeatureStore]:
    """Open a shop that knows what each user bought."""
    store = FeatureStore(settings=settings)

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="buy", max_retries=0)
    async def bought(user_id: str, event: ServiceEvent) -> list[int]:
        before = await store.get_feature("bought", user_id) or []
        return [*before, event.payload["number"]]

    async with store:
        yield store


@pytest.fixture
async def shop(settings: Settings) -> AsyncIterator[FeatureStore]:
    async with opened(settings) as store:
        yield store


async def buy(shop: FeatureStore, *numbers: int) -> None:
    for number in numbers:
        for user in USERS:
            await shop.publish("buy", user, {"number": number})


async def lose_redis(settings: Settings, last: str = "") -> None:
    """Delete the keys of a store, or those with this ending."""
    redis = Redis(settings.redis.url, timeout=60, connect_timeout=60)
    await redis.open()
    async for keys in redis.scan(settings.redis.prefix):
        if lost := [key for key in keys if key.endswith(last)]:
            await redis.calls([command(key, "DEL", key) for key in lost])
    await redis.close()


async def committed(shop: FeatureStore) -> dict[int, tuple[int, str]]:
    """Return the offsets that the store has committed, with their notes."""
    feeder = (await runtime_of(shop).open()).backends.feeder
    assert isinstance(feeder, KafkaFeeder)
    address = parse_url(shop.settings.bus.url, shop.settings.bus)
    consumer = TopicConsumer(address, group_of(address, (await feeder.source()).store_id), 60)
    try:
        return await consumer.committed(range(PARTITIONS))
    finally:
        await consumer.close()


async def buy_until_committed(shop: FeatureStore) -> int:
    """Let all users buy numbers until the store has committed how far it is; return the last."""
    backends = (await runtime_of(shop).open()).backends
    number = 0

    async def is_committed() -> bool:
        nonlocal number
        number += 1
        await buy(shop, number)
        await backends.offline.maintain()
        return len(await committed(shop)) == PARTITIONS

    await until(is_committed)
    return number


async def test_every_event_is_handled_once_though_redis_was_lost(
    shop: FeatureStore, settings: Settings
) -> None:
    worker = Worker(shop)
    running = asyncio.create_task(worker.run())
    number = await buy_until_committed(shop)
    await buy(shop, number + 1, number + 2)  # handled, and perhaps in history
    await until(lambda: _is_handled(shop))
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await buy(shop, number + 3)  # not handled
    offsets = await committed(shop)
    await lose_redis(settings)
    await buy(shop, number + 4)  # accepted while Redis has no store
    await shop.admin.rebuild(adopt=True)
    assert await committed(shop) == offsets
    await buy(shop, number + 5)
    await Worker(shop).drain()
    for user in USERS:
        assert await shop.get_feature("bought", user) == list(range(1, number + 6))
    logged = await shop.bus.list(entity_id="u1", limit=1_000)
    assert sorted(each.event.payload["number"] for each in logged) == list(range(1, number + 6))


async def test_another_store_on_the_topic_has_an_offset_of_its_own(
    shop: FeatureStore, settings: Settings, schemas: Schemas
) -> None:
    running = asyncio.create_task(Worker(shop).run())
    last = await buy_until_committed(shop)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    with schemas.lent() as schema:
        names = {"redis": {"prefix": schema}, "postgres": {"schema": schema}}
        async with opened(settings.replace(**names)) as other:
            await Worker(other).drain()
            for user in USERS:
                assert await other.get_feature("bought", user) == list(range(1, last + 1))
        await lose_redis(settings.replace(**names))


async def _is_handled(shop: FeatureStore) -> bool:
    return sum(lag.waiting for lag in await shop.admin.lag()) == 0


async def test_the_report_of_an_erasure_names_the_topic_that_keeps_events(
    shop: FeatureStore, settings: Settings
) -> None:
    report = await shop.admin.forget("User", "u1", reason="request 12")
    assert report.topic == settings.bus.url
