"""The cache of one process: of bounded size, and forgotten when it is over."""

from __future__ import annotations

from datetime import timedelta

import pytest

from headwater.backends.memory import MemoryCache
from headwater.ports import Cached
from headwater.testing import ManualClock

MINUTE = timedelta(minutes=1)
KILOBYTE = b"x" * 1_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def cached(clock: ManualClock, value: bytes = KILOBYTE) -> Cached:
    return Cached(value, clock.micros())


async def test_a_value_is_there_until_its_time_to_live_is_over(clock: ManualClock) -> None:
    cache = MemoryCache(clock)
    kept = cached(clock)
    clock.advance("10s")
    await cache.put("a", kept, MINUTE)
    clock.advance("49s")
    assert await cache.get("a") == kept
    assert await cache.get("b") is None
    clock.advance("1s")
    assert await cache.get("a") is None


async def test_a_value_takes_the_place_of_an_earlier_one_and_has_its_own_end(
    clock: ManualClock,
) -> None:
    cache = MemoryCache(clock)
    await cache.put("a", cached(clock, b"earlier"), MINUTE)
    later = cached(clock, b"later")
    await cache.put("a", later, 3 * MINUTE)
    clock.advance("2m")
    assert await cache.get("a") == later


async def test_the_size_is_bounded_and_the_entries_that_expire_last_stay(
    clock: ManualClock,
) -> None:
    cache = MemoryCache(clock, 10_000)
    for number in range(50):
        await cache.put(str(number), cached(clock), (50 - number) * MINUTE)
    found = [number for number in range(50) if await cache.get(str(number)) is not None]
    assert found == list(range(10))


async def test_expired_entries_take_no_space(clock: ManualClock) -> None:
    cache = MemoryCache(clock, 10_000)
    for number in range(10):
        await cache.put(str(number), cached(clock), MINUTE)
    clock.advance("2m")
    await cache.put("large", cached(clock, b"x" * 9_000), MINUTE / 2)
    assert await cache.get("large") is not None


async def test_a_time_to_live_has_no_upper_limit(clock: ManualClock) -> None:
    cache = MemoryCache(clock)
    await cache.put("a", cached(clock), timedelta.max)
    assert await cache.get("a") is not None


async def test_a_drop_by_another_process_empties_the_memory_of_all(clock: ManualClock) -> None:
    store = MemoryCache(clock)
    one, other = (MemoryCache(clock, shared=store) for _ in range(2))
    for process in (one, other):
        await process.put("a", cached(clock), MINUTE, drops=await process.drops())
    before = await other.drops()
    await one.drop("a")
    for process in (one, other):
        await process.put("b", cached(clock), MINUTE, drops=before)
        assert [await process.get("a"), await process.get("b")] == [None, None]
        await process.put("b", cached(clock), MINUTE, drops=await process.drops())
        assert await process.get("b") is not None


async def test_a_dropped_value_is_not_kept_in_memory_after_the_next_read(
    clock: ManualClock,
) -> None:
    store = MemoryCache(clock)
    process = MemoryCache(clock, shared=store)
    await process.put("a", cached(clock), MINUTE)
    await store.drop()
    assert await process.get("a") is None
    assert process._values == {}  # noqa: SLF001
