"""The embedded cache: bounded size and removal of expired values."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from headwater.backends.connect import connect
from headwater.backends.redis.client import command
from headwater.backends.sqlite.cache import SqliteCache
from headwater.core.clock import SystemClock
from headwater.ports import Cached
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.backends.duckdb.embedded import Embedded, embedded

MINUTE = timedelta(minutes=1)
KILOBYTE = b"x" * 1_000


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Embedded]:
    with embedded(tmp_path / "home", 1_000) as opened:
        yield opened


def opened(parts: Embedded, largest: int = 1 << 20) -> SqliteCache:
    return SqliteCache(parts.home, parts.writer, parts.clock, largest)


def cached(clock: ManualClock, value: bytes = KILOBYTE) -> Cached:
    return Cached(value, clock.micros())


def size(parts: Embedded) -> int:
    ((total,),) = parts.home.read("SELECT coalesce(sum(length(value)), 0) FROM cache")
    return int(total)


async def test_expired_values_are_removed(parts: Embedded) -> None:
    cache = opened(parts)
    brief = cached(parts.clock, b"")
    await asyncio.gather(*(cache.put(f"brief {number}", brief, MINUTE) for number in range(1_500)))
    await cache.put("lasting", cached(parts.clock), 10 * MINUTE)
    await cache.prune()
    assert parts.tail_rows("cache") == 1_501
    parts.clock.advance("2m")
    await cache.prune()
    assert parts.tail_rows("cache") == 501
    await cache.prune()
    await cache.prune()
    assert parts.tail_rows("cache") == 1
    assert await cache.get("lasting") is not None


async def test_maintenance_removes_expired_values(tmp_path: Path) -> None:
    clock = ManualClock()
    backends = await connect(Settings().replace(home=tmp_path), clock)
    await backends.cache.put("a", cached(clock), MINUTE)
    clock.advance("2m")
    await backends.offline.maintain()
    await backends.lifecycle.close()
    with closing(sqlite3.connect(tmp_path / "headwater.db")) as database:
        assert database.execute("SELECT key FROM cache").fetchall() == []


async def test_a_put_removes_expired_values_without_maintenance(parts: Embedded) -> None:
    cache = opened(parts)
    for number in range(5):
        await cache.put(f"brief {number}", cached(parts.clock), MINUTE)
    parts.clock.advance("2m")
    await cache.put("lasting", cached(parts.clock), MINUTE)
    assert parts.tail_rows("cache") == 1


async def test_the_size_is_bounded_and_values_that_expire_last_stay(parts: Embedded) -> None:
    cache = opened(parts, 100_000)
    for number in range(500):
        await cache.put(str(number), cached(parts.clock), (500 - number) * MINUTE)
        assert size(parts) < 110_000
    found = [number for number in range(500) if await cache.get(str(number)) is not None]
    assert found[:90] == list(range(90))


async def test_a_value_that_is_too_large_is_not_stored(parts: Embedded) -> None:
    cache = opened(parts, 100_000)
    await cache.put("small", cached(parts.clock), MINUTE)
    await cache.put("large", cached(parts.clock, b"x" * 100_001), MINUTE / 2)
    assert await cache.get("large") is None
    assert await cache.get("small") is not None


async def test_putting_a_value_again_does_not_count_twice(parts: Embedded) -> None:
    cache = opened(parts, 100_000)
    await cache.put("other", cached(parts.clock), MINUTE)
    for _ in range(300):
        await cache.put("same", cached(parts.clock), 2 * MINUTE)
    assert await cache.get("other") is not None
    assert size(parts) == 2_000


async def test_values_expire_by_the_clock_of_the_store(parts: Embedded) -> None:
    cache = opened(parts)
    kept = cached(parts.clock)
    await cache.put("a", kept, MINUTE)
    parts.clock.advance("59s")
    assert await cache.get("a") == kept
    parts.clock.advance("1s")
    assert await cache.get("a") is None


async def test_values_in_redis_expire_by_the_clock_of_the_store(production: Settings) -> None:
    clock = ManualClock(SystemClock().now())
    backends = await connect(production, clock)
    kept = cached(clock)
    await backends.cache.put("a", kept, MINUTE)
    clock.advance("59s")
    assert await backends.cache.get("a") == kept
    clock.advance("1s")
    assert await backends.cache.get("a") is None
    await backends.lifecycle.close()


async def test_redis_removes_expired_values(production: Settings) -> None:
    backends = await connect(production, SystemClock())
    searched_at = SystemClock().micros() - 50 * 60_000_000
    await backends.cache.put("a", Cached(b"found", searched_at), 60 * MINUTE)
    name = f"{production.redis.prefix}:cache:a"
    redis = backends.cache._redis  # type: ignore[attr-defined] # noqa: SLF001
    left = await redis.call(command(name, "PTTL", name))
    assert 0 < left <= 10 * 60_000
    await backends.lifecycle.close()
