"""The marks that transactions leave in a topic are no records, and nothing waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Producer

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.core.clock import SystemClock
from headwater.core.partitioning import partition_of
from headwater.engine.worker.worker import Worker
from headwater.model.events import MirrorOptions
from headwater.settings.schema import Settings
from headwater.store.event_mirror import EventMirror
from tests.engine.support import backlog
from tests.kafka import PARTITIONS, Brokers, on_kafka

USERS = [f"u{number}" for number in range(12)]


@pytest.fixture
async def buying(production: Settings, kafka: Brokers) -> AsyncIterator[FeatureStore]:
    store = FeatureStore(settings=on_kafka(production, kafka.new_topic()))

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="buy")
    async def bought(user_id: str, event: ServiceEvent) -> list[int]:
        before = await store.get_feature("bought", user_id) or []
        return [*before, event.payload["number"]]

    async with store:
        yield store


def buy_in_transactions(kafka: Brokers, url: str, *numbers: int) -> None:
    """Let every user buy each of the numbers, which are committed, and 0 between, which is not."""
    brokers, _, topic = url.removeprefix("kafka://").partition("/")
    options = {"bootstrap.servers": brokers, "transactional.id": f"shop-{topic}", "log_level": 2}
    producer = Producer(options)
    producer.init_transactions(60)
    for number in numbers:
        for bought, end in (
            (0, producer.abort_transaction),
            (number, producer.commit_transaction),
        ):
            producer.begin_transaction()
            for user in USERS:
                value = msgspec.json.encode({"event_type": "buy", "number": bought})
                producer.produce(topic, value, user.encode(), partition_of(user, PARTITIONS))
            if bought or kafka.hides_aborted:
                producer.flush(60)
            end(60)


async def test_a_drain_ends_behind_transactions(buying: FeatureStore, kafka: Brokers) -> None:
    for number in (1, 2):
        buy_in_transactions(kafka, buying.settings.bus.url, number)
        async with asyncio.timeout(60):
            await Worker(buying).drain()
        assert await backlog(buying) == 0
        for lag in await buying.admin.lag():
            assert lag.waiting == 0
    for user in USERS:
        await buying.publish("buy", user, {"number": 3})
    buy_in_transactions(kafka, buying.settings.bus.url, 4, 5)
    await Worker(buying).drain()
    for user in USERS:
        assert await buying.get_feature("bought", user) == [1, 2, 3, 4, 5]


async def test_a_copy_ends_behind_transactions(kafka: Brokers, tmp_path: Path) -> None:
    url = kafka.new_topic()
    async with FeatureStore(settings=Settings().replace(home=tmp_path / "home")) as store:
        for numbers in ((), (1,), (2, 3)):
            buy_in_transactions(kafka, url, *numbers)
            mirror = EventMirror(
                store.bus, SystemClock(), store.settings, url, MirrorOptions(once=True)
            )
            async with asyncio.timeout(60):
                report = await mirror.run()
            assert report.published == len(numbers) * len(USERS)
