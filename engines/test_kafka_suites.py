"""The suites of the bus on three real brokers, with mirrors, transactions and a lost Redis."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from conformance.suite import Opened
from engines.brokers import BROKERS, kafka_brokers
from headwater import FeatureStore
from headwater.settings.schema import Settings
from tests.backends.kafka.test_feeder import appended, read_all
from tests.backends.kafka.test_mirror import (
    copy,
    numbers,
    send,
    store,
    test_a_copy_that_is_interrupted_after_each_batch_continues,
    test_a_topic_is_copied_once_and_continued,
    test_each_record_is_copied_into_redis_once_though_copies_are_killed,
    test_fields_have_other_names_and_a_copy_can_begin_at_the_end,
)
from tests.backends.kafka.test_other_topic import (
    OTHER,
    send_numbers,
    test_nothing_is_taken_from_another_topic_in_place_of_the_first,
)
from tests.backends.kafka.test_rebuild import (
    lose_redis,
    settings,
    shop,
    test_another_store_on_the_topic_has_an_offset_of_its_own,
    test_every_event_is_handled_once_though_redis_was_lost,
)
from tests.backends.kafka.test_transactions import (
    buying,
    test_a_copy_ends_behind_transactions,
    test_a_drain_ends_behind_transactions,
)
from tests.conformance.openings import openings
from tests.conformance.test_production import (
    TestKafkaBus,
    TestKafkaDeadLetters,
    TestKafkaErasures,
    TestKafkaEventPages,
    TestKafkaGroups,
)
from tests.engine.support import until
from tests.kafka import PARTITIONS, Brokers, on_kafka
from tests.servers import POLL_SECONDS

__all__ = [
    "TestKafkaBus",
    "TestKafkaDeadLetters",
    "TestKafkaErasures",
    "TestKafkaEventPages",
    "TestKafkaGroups",
    "buying",
    "settings",
    "shop",
    "store",
    "test_a_copy_ends_behind_transactions",
    "test_a_copy_that_is_interrupted_after_each_batch_continues",
    "test_a_drain_ends_behind_transactions",
    "test_a_topic_is_copied_once_and_continued",
    "test_another_store_on_the_topic_has_an_offset_of_its_own",
    "test_each_record_is_copied_into_redis_once_though_copies_are_killed",
    "test_every_event_is_handled_once_though_redis_was_lost",
    "test_fields_have_other_names_and_a_copy_can_begin_at_the_end",
    "test_nothing_is_taken_from_another_topic_in_place_of_the_first",
]


class RealBrokers(Brokers):
    """Three brokers of Apache Kafka, each a process."""

    hides_aborted = True

    def __init__(self, addresses: str) -> None:
        self.addresses = addresses
        self._admin = AdminClient({"bootstrap.servers": addresses, "log_level": 2})

    def new_topic(self, name: str = "") -> str:
        """Create an empty topic with a leader of each partition, and return its URL."""
        topic = name or f"test-{uuid4().hex[:12]}"
        (created,) = self._admin.create_topics([NewTopic(topic, PARTITIONS, BROKERS)]).values()
        created.result()
        while True:
            partitions = self._admin.list_topics(topic, timeout=60).topics[topic].partitions
            if [each.leader >= 0 for each in partitions.values()] == [True] * PARTITIONS:
                return f"kafka://{self.addresses}/{topic}"
            time.sleep(POLL_SECONDS)

    def replace_topic(self, url: str) -> str:
        """Delete a topic and create it again."""
        topic = url.rpartition("/")[2]
        (deleted,) = self._admin.delete_topics([topic]).values()
        deleted.result()
        while topic in self._admin.list_topics(timeout=60).topics:
            time.sleep(POLL_SECONDS)
        return self.new_topic(topic)


@pytest.fixture(scope="module")
def kafka() -> Iterator[Brokers]:
    with kafka_brokers() as machines:
        yield RealBrokers(",".join(f"127.0.0.1:{each.port}" for each in machines))


async def test_a_running_feeder_notices_that_the_topic_was_created_again(
    production: Settings, kafka: Brokers, capsys: pytest.CaptureFixture[str]
) -> None:
    url = kafka.new_topic()
    settings = on_kafka(production, url)
    async with openings(settings) as connect:
        store = await Opened.by(connect)
        leases = await store.hold()
        async with appended(store):
            send_numbers(settings, range(10))
            await read_all(store, 10, leases)
            await asyncio.to_thread(kafka.replace_topic, url)
            send_numbers(settings, range(10, 15))
            await until(lambda: OTHER in capsys.readouterr().err)
            send_numbers(settings, range(15, 40))
            await lose_redis(settings, ":feed")
            events = await read_all(store, 30, leases)
    assert [event.payload["number"] for event in events] == list(range(10, 40))


async def test_a_topic_that_was_created_again_is_copied_from_its_beginning(
    store: FeatureStore, kafka: Brokers
) -> None:
    url = kafka.new_topic()
    send(url, range(10))
    assert (await copy(store, url)).published == 10
    await asyncio.to_thread(kafka.replace_topic, url)
    send(url, range(10, 40))
    assert (await copy(store, url)).published == 30
    assert await numbers(store) == list(range(40))
