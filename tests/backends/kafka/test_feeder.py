"""Records are appended to the streams once and in order, whoever appends and dies."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer

from conformance.deduplication import DAY
from conformance.suite import Opened, click, outcome, until
from headwater.backends.kafka import records
from headwater.backends.kafka.address import parse_url
from headwater.backends.kafka.client import TopicIdentity
from headwater.backends.kafka.records import encode
from headwater.core.partitioning import partition_of
from headwater.model.values import MALFORMED, ServiceEvent
from headwater.ports import Awaited, FeedRecord, Lease, event_content, no_subjects
from headwater.settings.schema import Settings
from tests.conformance.openings import openings
from tests.kafka import PARTITIONS, Brokers, on_kafka

EVENTS = 4_000


@pytest.fixture
def settings(production: Settings, kafka: Brokers) -> Settings:
    return on_kafka(production, kafka.new_topic())


@pytest.fixture
async def store(settings: Settings) -> AsyncIterator[Opened]:
    async with openings(settings) as connect:
        yield await Opened.by(connect)


def arguments(settings: Settings) -> str:
    groups = {
        name: msgspec.structs.asdict(getattr(settings, name))
        for name in ("redis", "postgres", "bus")
    }
    return msgspec.json.encode({"partitions": settings.partitions, **groups}).decode()


async def feeding(settings: Settings) -> asyncio.subprocess.Process:
    """Start a process that appends records, and wait until it does."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.backends.kafka.feeding", arguments(settings)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"feeding\n"
    return process


@asynccontextmanager
async def appended(store: Opened) -> AsyncIterator[None]:
    """Append records in this process meanwhile."""
    assert store.feeder is not None
    task = asyncio.create_task(store.feeder.run(range(PARTITIONS), no_subjects))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def send(settings: Settings, records: list[tuple[str, bytes, Mapping[str, Any]]]) -> None:
    """Write records to the topic as another producer would, by partition of their entity."""
    address = parse_url(settings.bus.url, settings.bus)
    producer = Producer({"bootstrap.servers": address.brokers, "log_level": 2})
    for key, value, options in records:
        partition = partition_of(key, PARTITIONS)
        producer.produce(address.topic, value, key.encode(), **{"partition": partition, **options})
    assert producer.flush(60) == 0


async def read_all(store: Opened, count: int, leases: Sequence[Lease] = ()) -> list[ServiceEvent]:
    """Read and commit events until there are so many."""
    leases = leases or await store.hold()
    events: list[ServiceEvent] = []

    async def is_read() -> bool:
        for batch in await store.read(leases):
            events.extend(delivery.event for delivery in batch.deliveries)
            await store.bus.commit(outcome(batch))
        await store.bus.wait("w1", 0.01)
        return len(events) >= count

    await until(is_read)
    return events


async def test_each_record_is_appended_once_and_in_order_though_feeders_die_and_freeze(
    store: Opened, settings: Settings
) -> None:
    random = Random(7)
    names = [f"u{number}" for number in range(50)]
    sent = [(random.choice(names), number) for number in range(EVENTS)]
    send(
        settings,
        [
            (name, msgspec.json.encode({"event_type": "click", "number": number}), {})
            for name, number in sent
        ],
    )
    frozen = await feeding(settings)
    frozen.send_signal(signal.SIGSTOP)
    reading = asyncio.create_task(read_all(store, EVENTS))
    processes = [await feeding(settings) for _ in range(2)]
    for _ in range(4):
        victim = processes.pop(0)
        victim.kill()
        processes.append(await feeding(settings))
        frozen.send_signal(signal.SIGCONT)
    events = await reading
    for process in (frozen, *processes):
        process.kill()
        await process.wait()
    assert await store.read(await store.hold("w2")) == []
    for name in names:
        found = [event.payload["number"] for event in events if event.entity_id == name]
        assert found == [number for entity_id, number in sent if entity_id == name]
    assert len(events) == EVENTS


async def test_publishers_and_feeders_append_each_event_once(
    store: Opened, settings: Settings
) -> None:
    async with openings(settings) as connect, appended(store):
        others = [await Opened.by(connect) for _ in range(2)]
        for number in range(100):
            await asyncio.gather(
                *(
                    each.publish([click(f"u{place}", number), click("shared", number)])
                    for place, each in enumerate([store, *others])
                )
            )
        events = await read_all(store, 600)
        for place in range(3):
            found = [e.payload["number"] for e in events if e.entity_id == f"u{place}"]
            assert found == list(range(100))
        assert sorted(e.payload["number"] for e in events if e.entity_id == "shared") == sorted(
            3 * list(range(100))
        )
        assert await store.bus.backlog() == 0


async def test_the_first_publishers_of_a_process_append_all_that_they_sent(store: Opened) -> None:
    events = [click(event_id="e1")] * 20
    answers = await asyncio.gather(
        *(store.bus.publish([event], dedup_window=DAY) for event in events)
    )
    assert sum(not answer.duplicate for (answer,) in answers) == 1
    assert await store.bus.backlog() == 1  # no repetition waits in the topic for a feeder


async def test_an_event_keeps_its_place_when_it_is_repeated_before_it_is_appended(
    store: Opened, settings: Settings
) -> None:
    events = [click(number=number, event_id=f"e{number}") for number in range(3)]
    # Accepted by a publisher that died, or could not reach Redis, before it appended them.
    accepted = [encode(FeedRecord(-1, event, event_content(event))) for event in events]
    send(settings, [("u1", value, {"headers": headers}) for _, value, headers in accepted])
    await store.bus.publish([events[0]], dedup_window=DAY)
    async with appended(store):
        found = await read_all(store, 3)
        assert [event.payload["number"] for event in found] == [0, 1, 2]
        assert await store.bus.backlog() == 0


async def test_what_redis_has_no_room_for_stays_in_kafka(
    settings: Settings, production: Settings
) -> None:
    small = settings.replace(bus={"max_waiting": 20})
    async with openings(small) as connect:
        store = await Opened.by(connect)
        async with appended(store):
            for number in range(100):
                await store.publish([click(number=number)])
            assert await store.bus.backlog() == 100
            leases = await store.hold()
            assert [group.waiting for group in await store.groups.groups()] == [100]
            assert len((await store.only_batch(leases)).deliveries) <= 21
            await store.leases.release(leases)
            await store.offline.maintain()

            async def drained() -> bool:
                await store.offline.maintain()  # takes the events that are handled out of Redis
                return await store.bus.backlog() == 0

            reading = asyncio.create_task(read_all(store, 100))
            await until(drained)
            assert [event.payload["number"] for event in await reading] == list(range(100))


async def test_many_bytes_are_appended_in_portions(
    store: Opened, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_MOST_BYTES", 1_000)
    value = msgspec.json.encode({"event_type": "click", "text": "x" * 300})
    send(settings, [("u1", value[:-1] + b', "number": %d}' % n, {}) for n in range(100)])
    async with appended(store):
        events = await read_all(store, 100)
    assert [event.payload["number"] for event in events] == list(range(100))


async def test_records_of_other_producers_become_events(store: Opened, settings: Settings) -> None:
    whole: dict[str, Any] = {
        "event_type": "click",
        "entity_id": "u2",
        "payload": {"number": 2},
        "timestamp": "2026-01-01T00:00:00+00:00",
        "event_id": "e2",
    }
    elsewhere = (partition_of("u3", PARTITIONS) + 1) % PARTITIONS
    send(
        settings,
        [
            ("u1", b'{"event_type": "click", "number": 1}', {"timestamp": 1_767_225_600_000}),
            ("u2", msgspec.json.encode(whole), {}),
            ("u2", msgspec.json.encode(whole), {}),
            ("u3", b'{"event_type": "click", "number": 3}', {"partition": elsewhere}),
            ("u4", b"\xff not JSON", {}),
            ("u4", b'{"number": 4}', {}),
        ],
    )
    async with appended(store):
        events = await read_all(store, 5)
    found = {event.entity_id: event for event in events if event.event_type == "click"}
    first = found["u1"]
    assert (first.payload, first.timestamp.isoformat()) == (
        {"number": 1},
        "2026-01-01T00:00:00+00:00",
    )
    log = await TopicIdentity(parse_url(settings.bus.url, settings.bus), 60).read()
    assert first.event_id == f"{log}-{partition_of('u1', PARTITIONS)}-0"
    assert found["u2"] == ServiceEvent(**{**whole, "timestamp": first.timestamp})
    assert found["u3"].payload == {"number": 3}
    problems = [event.payload for event in events if event.event_type == MALFORMED]
    assert len(problems) == 2
    assert "it is not JSON" in str(problems)
    assert "it has no field" in str(problems)


async def test_a_record_waits_for_a_function_that_cannot_decode_it_yet(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "registered.py").write_text(
        """
answers = [ConnectionError("the registry is away"), ValueError("no such schema")]

def decode(value, headers):
    if answers:
        raise answers.pop(0)
    return {"event_type": "click", "number": int(value)}
"""
    )
    monkeypatch.syspath_prepend(tmp_path)
    send(settings, [("u1", b"1", {}), ("u1", b"2", {})])
    async with openings(settings.replace(bus={"decode": "registered:decode"})) as connect:
        store = await Opened.by(connect)
        async with appended(store):
            unknown, second = await read_all(store, 2)
    assert unknown.event_type == MALFORMED
    assert "no such schema" in str(unknown.payload)
    assert second.payload == {"number": 2}


async def test_an_event_is_awaited_until_a_feeder_has_appended_it(
    store: Opened, settings: Settings
) -> None:
    send(settings, [("u1", b'{"event_type": "click", "number": 1}', {})])
    (result,) = await store.bus.publish([click(number=2)], dedup_window=None, positions=True)
    assert result.position.startswith("@")
    awaited = [Awaited("u1", result.position)]
    assert await store.bus.handled("workers", awaited) == [None]
    async with asyncio.timeout(60):
        waiting = asyncio.create_task(store.bus.handled("workers", awaited, wait=True))
        async with appended(store):
            events = await read_all(store, 2)
            assert await waiting == [frozenset()]
    assert [event.payload["number"] for event in events] == [1, 2]
