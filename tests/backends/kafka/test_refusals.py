"""Only a refusal during a call is the reason why the call got no answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from headwater.backends.kafka import client
from headwater.backends.kafka.address import TopicAddress, parse_url
from headwater.backends.kafka.client import Sent, TopicConsumer, TopicProducer
from headwater.errors import BackendError, BackendUnavailableError
from headwater.settings.servers import BusSettings
from tests.kafka import Brokers

RECORD: Sent = (0, b"u1", b"{}", [])
PASSED = KafkaError(KafkaError.SASL_AUTHENTICATION_FAILED, "refused")
# The mock cluster knows no logins, so it refuses each.
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "headwater",
    "sasl.password": "former",
}


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[KafkaError], None]]:
    """Return the functions by which the producers of a test are told of errors."""
    found: list[Callable[[KafkaError], None]] = []

    def opened(config: dict[str, Any]) -> Producer:
        found.append(config["error_cb"])
        return Producer(config)

    monkeypatch.setattr(client, "Producer", opened)
    return found


def address_of(brokers: Brokers) -> TopicAddress:
    return parse_url(brokers.new_topic(), BusSettings())


async def test_a_refusal_that_has_passed_is_not_the_reason_of_a_later_timeout(
    notes: list[Callable[[KafkaError], None]],
) -> None:
    brokers = Brokers()
    producer = TopicProducer(address_of(brokers), 3.0, 1_000)
    try:
        await producer.send([RECORD])
        notes[0](PASSED)  # such as while a password is changed
        del brokers  # stops them
        with pytest.raises(BackendUnavailableError, match="no acknowledgement within 3 seconds"):
            await producer.send([RECORD])
    finally:
        await producer.close()


async def test_a_refusal_during_a_call_is_the_reason_of_its_timeout(kafka: Brokers) -> None:
    address = address_of(kafka)._replace(options=LOGIN)
    producer, consumer = TopicProducer(address, 1.0, 1_000), TopicConsumer(address, "g", 1.0)
    try:
        for call in (producer.send([RECORD]), consumer.partitions()):
            with pytest.raises(BackendError, match=r"check bus\.options, bus\.password") as raised:
                await call
            assert not isinstance(raised.value, BackendUnavailableError)
    finally:
        await producer.close()
        await consumer.close()
