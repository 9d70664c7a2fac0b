"""Conformance tests of the ``Cache`` port."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from conformance.suite import Opened, Suite, until
from headwater.core.clock import SystemClock
from headwater.ports import Cached

HOUR = timedelta(hours=1)
SECOND = 1_000_000


def cached(value: bytes = b"found", *, seconds_ago: float = 0) -> Cached:
    """Return a value that was stored this many seconds ago."""
    return Cached(value, SystemClock().micros() - round(seconds_ago * SECOND))


class CacheConformance(Suite):
    """Values that may be lost at any time, shared by all processes of a store."""

    async def test_values_are_shared_by_all_processes_of_a_store(
        self, store: Opened, other: Opened
    ) -> None:
        kept = cached()
        await store.cache.put("a", kept, HOUR)
        assert await other.cache.get("a") == kept
        assert await other.cache.get("b") is None

    async def test_values_whose_keys_begin_with_a_prefix_are_dropped(
        self, store: Opened, other: Opened
    ) -> None:
        kept, dropped = ["a", "b:*", "B*:1", "xb*:1"], [f"b*:{n}" for n in range(300)]
        for key in (*kept, *dropped):
            await store.cache.put(key, cached(), HOUR)
        await other.cache.drop("b*:", "other:")
        await other.cache.drop("nothing:")
        for key in dropped:
            assert await store.cache.get(key) is None
        for key in kept:
            assert await store.cache.get(key) is not None

    async def test_a_value_that_was_computed_during_a_drop_is_absent(
        self, store: Opened, other: Opened
    ) -> None:
        before = await store.cache.drops()
        await store.cache.put("a", cached(), HOUR, drops=before)
        assert await other.cache.get("a") is not None
        await other.cache.drop("b:")
        for process in (store, other):
            assert await process.cache.drops() > before
            await process.cache.put("b:1", cached(), HOUR, drops=before)
            await process.cache.put("a", cached(), HOUR, drops=before)
            assert await store.cache.get("b:1") is None
            assert await other.cache.get("b:1") is None
        now = cached(b"computed since")
        await store.cache.put("a", now, HOUR, drops=await store.cache.drops())
        assert await other.cache.get("a") == now

    async def test_values_and_keys_may_be_anything(self, store: Opened) -> None:
        values = {
            key: cached(bytes(range(256)) * number)
            for number, key in enumerate(["", "a b", "{a}b", "{}", "}{", "ü\0%*", "x" * 5_000])
        }
        await asyncio.gather(*(store.cache.put(*item, HOUR) for item in values.items()))
        for key, value in values.items():
            assert await store.cache.get(key) == value

    async def test_a_value_replaces_an_earlier_one(self, store: Opened, other: Opened) -> None:
        later = cached(b"later")
        await store.cache.put("a", cached(b"earlier"), HOUR)
        await other.cache.put("a", later, 2 * HOUR)
        assert await store.cache.get("a") == later

    async def test_a_time_to_live_starts_at_kept_at(self, store: Opened) -> None:
        fresh = cached(seconds_ago=1_800)
        await store.cache.put("fresh", fresh, HOUR)
        await store.cache.put("over", cached(seconds_ago=3_700), HOUR)
        assert await store.cache.get("fresh") == fresh
        assert await store.cache.get("over") is None

    async def test_a_value_whose_time_to_live_is_over_is_absent(self, store: Opened) -> None:
        await store.cache.put("brief", cached(), timedelta(milliseconds=50))

        async def absent() -> bool:
            return await store.cache.get("brief") is None

        await until(absent)

    async def test_a_time_to_live_may_be_arbitrarily_long(self, store: Opened) -> None:
        kept = cached()
        await store.cache.put("a", kept, timedelta.max)
        assert await store.cache.get("a") == kept

    async def test_maintain_keeps_values_that_are_not_expired(
        self, store: Opened, other: Opened
    ) -> None:
        kept = cached()
        await store.cache.put("fresh", kept, HOUR)
        await store.cache.put("over", cached(seconds_ago=3_700), HOUR)
        await asyncio.gather(store.offline.maintain(), other.offline.maintain())
        assert await store.cache.get("fresh") == kept
        assert await store.cache.get("over") is None
