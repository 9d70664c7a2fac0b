"""Offsets mean records of one topic: another one in its place stops the feed, and is logged."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from conformance.suite import Opened, click
from headwater.settings.schema import Settings
from tests.backends.kafka.test_feeder import appended, read_all, send
from tests.backends.kafka.test_rebuild import lose_redis
from tests.conformance.openings import openings
from tests.engine.support import until
from tests.kafka import Brokers, on_kafka

OTHER = "another topic has the place of the one that events were taken from"


def send_numbers(settings: Settings, numbers: range) -> None:
    records = [{"event_type": "click", "number": number} for number in numbers]
    send(settings, [("u1", msgspec.json.encode(record), {}) for record in records])


async def test_nothing_is_taken_from_another_topic_in_place_of_the_first(
    production: Settings, kafka: Brokers, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = on_kafka(production, kafka.new_topic())
    async with openings(settings) as connect:
        store = await Opened.by(connect)
        async with appended(store):
            send_numbers(settings, range(10))
            leases = await store.hold()
            await read_all(store, 10, leases)
        await store.leases.release(leases)
    settings = on_kafka(production, await asyncio.to_thread(kafka.replace_topic, settings.bus.url))
    send_numbers(settings, range(10, 20))
    async with openings(settings) as connect:
        store = await Opened.by(connect)
        leases = await store.hold()
        async with appended(store):
            await until(lambda: OTHER in capsys.readouterr().err)
            # Its record has the offset that would be the next one of the first topic.
            await store.publish([click(number=20)])
            assert await store.read(leases) == []
            await lose_redis(settings, ":feed")
            events = await read_all(store, 11, leases)
    assert [event.payload["number"] for event in events] == list(range(10, 21))
