"""A store that lost Redis takes from the topic what history does not have, and nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.backends.kafka.address import parse_url
from headwater.backends.kafka.client import TopicConsumer
from headwater.backends.kafka.environment import group_of
from headwater.backends.redis.client import Redis, command
from headwater.declarations.runtime import runtime_of
from headwater.engine.worker.worker import Worker
from headwater.settings.schema import Settings
from tests.engine.support import until
from tests.kafka import PARTITIONS, Brokers, on_kafka

USERS = [f"u{number}" for number in range(12)]


@pytest.fixture
def settings(production: Settings, kafka: Brokers) -> Settings:
    return on_kafka(production, kafka.new_topic())


@pytest.fixture
async def shop(settings: Settings) -> AsyncIterator[FeatureStore]:
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


async def buy(shop: FeatureStore, *numbers: int) -> None:
    for number in numbers:
        for user in USERS:
            await shop.publish("buy", user, {"number": number})


async def lose_redis(settings: Settings) -> None:
    redis = Redis(settings.redis.url, timeout=60, connect_timeout=60)
    await redis.open()
    async for keys in redis.scan(settings.redis.prefix):
        if keys:
            await redis.calls([command(key, "DEL", key) for key in keys])
    await redis.close()


async def test_every_event_is_handled_once_though_redis_was_lost(
    shop: FeatureStore, settings: Settings
) -> None:
    backends = (await runtime_of(shop).open()).backends
    worker = Worker(shop)
    running = asyncio.create_task(worker.run())
    address = parse_url(settings.bus.url, settings.bus)
    consumer = TopicConsumer(address, group_of(address), 60)
    number = 0

    async def is_committed() -> bool:
        nonlocal number
        number += 1
        await buy(shop, number)
        await backends.offline.maintain()
        return len(await consumer.committed(range(PARTITIONS))) == PARTITIONS

    await until(is_committed)
    await consumer.close()
    await buy(shop, number + 1, number + 2)  # handled, and perhaps in history
    await until(lambda: _is_handled(shop))
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await buy(shop, number + 3)  # not handled
    await lose_redis(settings)
    await buy(shop, number + 4)  # accepted while Redis has no store
    await shop.admin.rebuild(adopt=True)
    await buy(shop, number + 5)
    await Worker(shop).drain()
    for user in USERS:
        assert await shop.get_feature("bought", user) == list(range(1, number + 6))
    logged = await shop.bus.list(entity_id="u1", limit=1_000)
    assert sorted(each.event.payload["number"] for each in logged) == list(range(1, number + 6))


async def _is_handled(shop: FeatureStore) -> bool:
    return sum(lag.waiting for lag in await shop.admin.lag()) == 0


async def test_the_report_of_an_erasure_names_the_topic_that_keeps_events(
    shop: FeatureStore, settings: Settings
) -> None:
    report = await shop.admin.forget("User", "u1", reason="request 12")
    assert report.topic == settings.bus.url
