"""Large events are read in pages of limited size."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count, islice

import msgspec
import pytest

from headwater import ServiceEvent
from headwater.backends.redis.environment import RedisEnvironment, open_redis
from headwater.core.clock import SystemClock
from headwater.core.partitioning import partition_of
from headwater.model.values import Cell
from headwater.ports import BatchOutcome, Change, LogKind
from headwater.settings.schema import Settings
from tests.backends.redis.confirming import confirm

EVENTS = 60
LARGE = 500_000
READ_BYTES = 4 << 20
FETCH_BYTES = 1 << 20


@pytest.fixture
async def redis(settings: Settings) -> AsyncIterator[RedisEnvironment]:
    """A store with many large events of one entity."""
    opened = await open_redis(settings, SystemClock())
    await confirm(opened)
    for number in range(EVENTS):
        event = ServiceEvent("buy", "u1", {"number": number, "pad": "y" * LARGE})
        await opened.bus.publish([event], dedup_window=None)
    yield opened
    await opened.close()


async def test_a_read_gives_a_few_large_events_and_the_next_one_goes_on_after_them(
    redis: RedisEnvironment,
) -> None:
    await redis.leases.register("w1")
    leases = await redis.leases.claim("w1", range(redis.bus.partitions))
    (batch,) = await redis.bus.read(leases, 1_000, {})
    assert [delivery.event.payload["number"] for delivery in batch.deliveries] == list(range(9))
    assert len(batch.deliveries) * LARGE < READ_BYTES + LARGE
    await redis.leases.deregister("w1")


async def test_a_fetch_limits_the_size_of_events_and_reports_that_more_wait(
    redis: RedisEnvironment,
) -> None:
    assert await fetched(redis, "events") == [2] * 30


async def test_a_fetch_limits_the_size_of_changes(redis: RedisEnvironment) -> None:
    value = msgspec.Raw(b'"' + b"y" * LARGE + b'"')
    for number in range(EVENTS):
        cell = Cell(value, number, number)
        await redis.online.put([Change("note", "User", "u1", "text", cell, f"c{number}")])
    assert await fetched(redis, "history", limit=100_000) == [2] * 30


async def fetched(redis: RedisEnvironment, kind: LogKind, limit: int = 1_000) -> list[int]:
    """Return the number of rows of each fetch, until the last one."""
    counts: list[int] = []
    for partition in range(redis.outbox.partitions):
        after, more = "", True
        while more and (portion := await redis.outbox.fetch(kind, partition, after, limit)):
            assert len(portion.rows) < FETCH_BYTES + 1_000
            counts.append(portion.count)
            after, more = portion.upto, portion.more
    return counts


async def test_a_row_larger_than_a_portion_comes_alone(settings: Settings) -> None:
    redis = await open_redis(settings, SystemClock())
    await confirm(redis)
    for _ in range(2):
        huge = ServiceEvent("buy", "u1", {"pad": "y" * (READ_BYTES + 1)})
        await redis.bus.publish([huge], dedup_window=None)
    await redis.leases.register("w1")
    leases = await redis.leases.claim("w1", range(redis.bus.partitions))
    (batch,) = await redis.bus.read(leases, 1_000, {})
    assert len(batch.deliveries) == 1
    counts = []
    for partition in range(redis.outbox.partitions):
        portion = await redis.outbox.fetch("events", partition, "", 1_000)
        counts += [(portion.count, portion.more)] if portion else []
    assert counts == [(1, True)]
    await redis.leases.deregister("w1")
    await redis.close()


async def test_events_of_entities_with_large_states_come_in_portions_too(
    settings: Settings,
) -> None:
    redis = await open_redis(settings, SystemClock())
    await confirm(redis)
    ids = (f"u{number}" for number in count())
    own = list(islice((i for i in ids if partition_of(i, redis.bus.partitions) == 0), 130))
    value = msgspec.Raw(b'"' + b"y" * (READ_BYTES // 60) + b'"')
    for entity_id in own:
        cell = Cell(value, 1, 1)
        await redis.online.put([Change("note", "User", entity_id, "text", cell, "set")])
        await redis.bus.publish([ServiceEvent("buy", entity_id)], dedup_window=None)
    await redis.leases.register("w1")
    leases = await redis.leases.claim("w1", range(redis.bus.partitions))
    seen: list[str] = []
    sizes: list[int] = []
    while batches := await redis.bus.read(leases, 1_000, {"buy": ["User"]}):
        (batch,) = batches
        entities = [delivery.event.entity_id for delivery in batch.deliveries]
        assert {key[1]: state.version for key, state in batch.states.items()} == dict.fromkeys(
            entities, 1
        )
        seen += entities
        sizes.append(len(entities))
        await redis.bus.commit(BatchOutcome(batch, {}, {}, (), []))
    assert seen == own
    assert sizes == [100, 30]
    await redis.leases.deregister("w1")
    await redis.close()
