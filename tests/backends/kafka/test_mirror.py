"""A topic is copied into a store that keeps its own log, each record once."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import msgspec
import pytest
from confluent_kafka import Producer

from headwater import FeatureStore
from headwater.core.clock import SystemClock
from headwater.errors import CallerLimitError, ConfigError, InvalidInputError
from headwater.model.callers import Caller, CallerLimits, set_caller
from headwater.model.events import MIRRORED, MirrorOptions, MirrorReport
from headwater.settings.schema import Settings
from headwater.store import event_mirror
from headwater.store.event_mirror import EventMirror
from tests.backends.kafka.test_feeder import arguments
from tests.kafka import Brokers


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FeatureStore]:
    opened = FeatureStore(settings=Settings().replace(home=tmp_path / "home"))
    async with opened:
        yield opened


def send(url: str, numbers: range, **fields: object) -> None:
    brokers, _, topic = url.removeprefix("kafka://").partition("/")
    producer = Producer({"bootstrap.servers": brokers, "log_level": 2})
    for number in numbers:
        value = {"event_type": "click", "number": number, **fields}
        producer.produce(topic, msgspec.json.encode(value), f"u{number % 7}".encode())
    assert producer.flush(60) == 0


async def copy(store: FeatureStore, url: str, **options: object) -> MirrorReport:
    given = MirrorOptions(**{"once": True, **options})  # type: ignore[arg-type]
    return await EventMirror(store.bus, SystemClock(), store.settings, url, given).run()


async def numbers(store: FeatureStore) -> list[int]:
    logged = await store.bus.list(event_type="click", limit=1_000)
    return sorted(each.event.payload["number"] for each in logged)


async def test_a_topic_is_copied_once_and_continued(store: FeatureStore, kafka: Brokers) -> None:
    url = kafka.new_topic()
    send(url, range(100))
    assert (await copy(store, url)).published == 100
    assert (await copy(store, url)).records == 0
    send(url, range(100, 150))
    assert (await copy(store, url)).published == 50
    assert await numbers(store) == list(range(150))


async def test_a_copy_that_is_interrupted_after_each_batch_continues(
    store: FeatureStore, kafka: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_mirror, "_MOST", 100)
    url = kafka.new_topic()
    send(url, range(900))
    interrupted = 0
    while True:
        tasks: list[asyncio.Task[MirrorReport]] = []

        def interrupt(_: MirrorReport, tasks: list[asyncio.Task[MirrorReport]] = tasks) -> None:
            tasks[0].cancel()

        tasks.append(asyncio.create_task(copy(store, url, progress=interrupt)))
        try:
            await tasks[0]
        except asyncio.CancelledError:
            interrupted += 1
        else:
            break
    assert interrupted >= 9
    assert await numbers(store) == list(range(900))


async def test_each_record_is_copied_into_redis_once_though_copies_are_killed(
    production: Settings, kafka: Brokers
) -> None:
    random, killed, url = Random(31), 0, kafka.new_topic()
    send(url, range(1_000))
    while True:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.backends.kafka.mirroring"),
            *(arguments(production), url, "50"),
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        for _ in range(random.randint(1, 4)):
            if not await process.stdout.readline():
                break
        else:
            process.kill()
            killed += 1
        if await process.wait() == 0:
            break
    assert killed >= 5
    async with FeatureStore(settings=production) as store:
        assert await numbers(store) == list(range(1_000))
        assert (await copy(store, url)).records == 0


async def test_topics_of_one_name_in_two_clusters_are_both_copied(
    store: FeatureStore, kafka: Brokers
) -> None:
    url, other = kafka.new_topic(), Brokers()
    topic = url.rpartition("/")[2]
    send(url, range(20))
    send(other.new_topic(topic), range(20, 30))
    for each in (url, f"kafka://{other.addresses}/{topic}"):
        await copy(store, each)
        assert (await copy(store, each)).records == 0
    assert await numbers(store) == list(range(30))


async def test_records_that_are_no_events_are_counted_and_left_out(
    store: FeatureStore, kafka: Brokers
) -> None:
    url = kafka.new_topic()
    send(url, range(3))
    send(url, range(3, 5), event_type="headwater.malformed")
    send(url, range(5, 7), timestamp="2199-01-01T00:00:00+00:00")
    report = await copy(store, url)
    assert (report.records, report.published, report.rejected) == (7, 3, 4)


async def test_fields_have_other_names_and_a_copy_can_begin_at_the_end(
    store: FeatureStore, kafka: Brokers
) -> None:
    url = kafka.new_topic()
    send(url, range(5), customer="ada")
    await copy(store, url, fields={"entity_id": "customer"})
    assert len(await store.bus.list(entity_id="ada")) == 5
    (mark, *_) = await store.bus.list(event_type=MIRRORED)
    assert sum(mark.event.payload["offsets"].values()) == 5
    other = kafka.new_topic()
    send(other, range(5))
    assert (await copy(store, other, begin=datetime.now(UTC))).records == 0


async def test_a_wrong_topic_is_an_error_with_the_remedy(
    store: FeatureStore, kafka: Brokers
) -> None:
    with pytest.raises(InvalidInputError, match="no such topic"):
        await copy(store, f"kafka://{kafka.addresses}/missing")
    with pytest.raises(ConfigError, match="such as kafka://a:9092"):
        await copy(store, "kafka://broker")


async def test_a_limited_key_copies_nothing(store: FeatureStore, kafka: Brokers) -> None:
    url = kafka.new_topic()
    send(url, range(5))
    set_caller(Caller("acme", limits=CallerLimits(tenant="u")))
    with pytest.raises(CallerLimitError):
        await copy(store, url)
    set_caller(Caller("ops"))
    assert await store.bus.list() == []
