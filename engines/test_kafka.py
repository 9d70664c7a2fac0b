"""Events on three real brokers: none is lost, doubled or reordered though brokers and feeders die.

The long run: ``KAFKA_EVENTS=200000 KAFKA_FAULTS=30 make check-engines ARGS="-s -k reordered"``.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from random import Random
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from conformance.deduplication import DAY
from conformance.suite import Opened, click, outcome
from engines.brokers import kafka_brokers, url_of, wait_until_ready
from headwater.backends.connect import inspect, migrate
from headwater.backends.kafka.address import parse_url
from headwater.backends.kafka.client import TopicProducer
from headwater.core.clock import SystemClock
from headwater.errors import BackendError
from headwater.model.values import ServiceEvent
from headwater.settings.schema import Settings
from tests.backends.kafka.test_feeder import feeding
from tests.conformance.openings import openings
from tests.servers import Machine

EVENTS = int(os.environ.get("KAFKA_EVENTS", "10000"))
FAULTS = int(os.environ.get("KAFKA_FAULTS", "8"))
PUBLISHERS = 2
ENTITIES = 40
BATCH = 100


class Cluster(NamedTuple):
    """Three brokers, and the settings of a store with its events there."""

    brokers: list[Machine]
    settings: Settings


@pytest.fixture(scope="module")
def brokers() -> Iterator[list[Machine]]:
    with kafka_brokers() as machines:
        yield machines


@pytest.fixture
async def cluster(brokers: list[Machine], production: Settings) -> Cluster:
    wait_until_ready(brokers)
    url = url_of(brokers, f"events-{production.redis.prefix}")
    settings = production.replace(partitions=6, bus={"url": url, "timeout": 60})
    await migrate(settings)
    return Cluster(brokers, settings)


@pytest.fixture
async def stores(cluster: Cluster) -> AsyncIterator[list[Opened]]:
    async with openings(cluster.settings) as connect:
        yield [await Opened.by(connect) for _ in range(PUBLISHERS + 1)]


async def publish(store: Opened, publisher: int, acknowledged: list[ServiceEvent]) -> None:
    """Publish numbered events of entities of this publisher; what fails is sent again."""
    for first in range(0, EVENTS // PUBLISHERS, BATCH):
        events = [
            click(f"p{publisher}-{number % ENTITIES}", number, event_id=f"{publisher}-{number}")
            for number in range(first, first + BATCH)
        ]
        while True:
            with suppress(BackendError):
                await store.bus.publish(events, dedup_window=DAY)
                break
        acknowledged.extend(events)


async def maintain(store: Opened, read: Sequence[ServiceEvent]) -> None:
    """Take the events that are handled out of Redis until all are read."""
    while len(read) < EVENTS:
        with suppress(BackendError):
            await store.offline.maintain()
        await asyncio.sleep(1)


@pytest.mark.timeout(300 + EVENTS / 40)
async def test_no_event_is_lost_doubled_or_reordered(
    cluster: Cluster, stores: Sequence[Opened]
) -> None:
    *publishers, reader = stores
    random = Random(31)
    acknowledged: list[ServiceEvent] = []
    read: list[ServiceEvent] = []
    feeders = [await feeding(cluster.settings) for _ in range(2)]
    done: list[str] = []

    async def read_all() -> None:
        leases = await reader.hold()
        while len(read) < EVENTS:
            with suppress(BackendError):
                await reader.leases.heartbeat("w1", leases)
                for batch in await reader.read(leases):
                    await reader.bus.commit(outcome(batch))
                    read.extend(delivery.event for delivery in batch.deliveries)
                await reader.bus.wait("w1", 0.05)

    async def fail() -> None:
        for number in range(FAULTS):
            due = EVENTS * (number + 1) // (FAULTS + 1)
            while len(acknowledged) < due:  # noqa: ASYNC110 - others publish meanwhile
                await asyncio.sleep(0.01)
            kind = random.choice(["broker killed", "feeder killed", "feeder frozen"])
            if kind == "broker killed":
                broker = random.choice(cluster.brokers)
                await asyncio.to_thread(broker.kill)
                await asyncio.sleep(random.uniform(0.1, 2.0))
                await asyncio.to_thread(broker.start)
            else:
                feeder = feeders.pop(0)
                if kind == "feeder killed":
                    feeder.kill()
                    await feeder.wait()
                    feeder = await feeding(cluster.settings)
                else:
                    feeder.send_signal(signal.SIGSTOP)
                    await asyncio.sleep(random.uniform(0.1, 3.0))
                    feeder.send_signal(signal.SIGCONT)
                feeders.append(feeder)
            done.append(kind)

    async with asyncio.timeout(60 + EVENTS / 50):
        await asyncio.gather(
            *(publish(store, n, acknowledged) for n, store in enumerate(publishers)),
            read_all(),
            maintain(reader, read),
            fail(),
        )
    for feeder in feeders:
        feeder.kill()
        await feeder.wait()
    assert len(done) == FAULTS
    sys.stdout.write(f"{EVENTS} events, {dict(Counter(done))}\n")
    lost = {e.event_id for e in acknowledged} - {e.event_id for e in read}
    doubled = len(read) - len({e.event_id for e in read})
    by_entity: dict[str, list[int]] = {}
    for event in read:
        by_entity.setdefault(event.entity_id, []).append(event.payload["number"])
    reordered = sum(numbers != sorted(numbers) for numbers in by_entity.values())
    assert (len(lost), doubled, reordered) == (0, 0, 0)
    assert await reader.bus.backlog() == 0


def require_replicas(cluster: Cluster, count: int) -> None:
    """Let the topic take records when so many replicas are in sync."""
    address = parse_url(cluster.settings.bus.url, cluster.settings.bus)
    needed = ConfigEntry(
        "min.insync.replicas", str(count), incremental_operation=AlterConfigOpType.SET
    )
    topic = ConfigResource(ResourceType.TOPIC, address.topic, incremental_configs=[needed])
    admin = AdminClient({"bootstrap.servers": address.brokers, "log_level": 2})
    (changed,) = admin.incremental_alter_configs([topic]).values()
    changed.result()


async def test_no_record_is_accepted_that_was_sent_before_another_is_given_up(
    cluster: Cluster,
) -> None:
    """A publisher that repeats what failed would find it behind what did not fail."""
    address = parse_url(cluster.settings.bus.url, cluster.settings.bus)
    producer = TopicProducer(address, 8, 1_000)
    await producer.send([(0, b"u1", b"before", [])])
    await asyncio.to_thread(require_replicas, cluster, 3)
    cluster.brokers[0].kill()
    failed = asyncio.Event()

    async def send(number: int) -> bool:
        try:
            await producer.send([(0, b"u1", b"%d" % number, [])])
        except BackendError:
            failed.set()
            return False
        return True

    sending: list[asyncio.Task[bool]] = []
    async with asyncio.timeout(60):
        while not failed.is_set():
            sending.append(asyncio.create_task(send(len(sending))))
            await asyncio.sleep(0.05)
        await asyncio.to_thread(require_replicas, cluster, 2)
        assert not any(await asyncio.gather(*sending[:-1]))
    cluster.brokers[0].start()
    await producer.close()
    assert len(sending) > 10


async def test_the_doctor_finds_nothing_wrong_with_a_topic_of_migrate(cluster: Cluster) -> None:
    findings = await inspect(cluster.settings, SystemClock())
    found = {each.check: each.severity for each in findings if each.area == "event log"}
    assert found == {"topic": "ok", "replication": "ok", "retention": "ok", "size": "ok"}
