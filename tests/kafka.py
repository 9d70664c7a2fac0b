"""Brokers of Kafka for tests: the mock cluster of librdkafka, which speaks the real protocol."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from confluent_kafka import Producer

from headwater.settings.schema import Settings

PARTITIONS = 4
"""How many partitions a topic of the mock cluster has."""


class Brokers:
    """Three brokers in threads of this process, to which other processes can connect."""

    hides_aborted = False
    """Whether consumers do not get the records of transactions that were aborted."""

    def __init__(self) -> None:
        self._owner = Producer(
            {"test.mock.num.brokers": 3, "bootstrap.servers": "mock", "log_level": 2}
        )
        found = self._owner.list_topics(timeout=60).brokers.values()
        self.addresses = ",".join(f"{broker.host}:{broker.port}" for broker in found)

    def new_topic(self, name: str = "") -> str:
        """Create an empty topic and return its URL."""
        topic = name or f"test-{uuid4().hex[:12]}"
        self._owner.list_topics(topic, timeout=60)  # creates it
        return f"kafka://{self.addresses}/{topic}"

    def replace_topic(self, _url: str) -> str:
        """Create a topic for one that is given up, and return its URL."""
        return self.new_topic()


@contextmanager
def brokers() -> Iterator[Brokers]:
    """Yield a cluster of three brokers."""
    yield Brokers()


def on_kafka(settings: Settings, url: str) -> Settings:
    """Return the settings of a store on servers with its events in a topic."""
    return settings.replace(partitions=PARTITIONS, bus={"url": url, "timeout": 30})
