"""A cache in the memory of one process, for values that must not be written anywhere."""

from __future__ import annotations

import threading
from datetime import timedelta
from heapq import heappop, heappush

from headwater.core.clock import MICROSECOND, Clock
from headwater.ports import Cache, Cached

MAX_BYTES = 64 << 20
"""The size limit in bytes of all values together."""


class MemoryCache:
    """A cache that evicts the values that expire first when it is full.

    The count of drops is that of a cache which other processes share, if there is one: this one is
    emptied at the first use after a drop.
    """

    def __init__(
        self, clock: Clock, max_bytes: int = MAX_BYTES, *, shared: Cache | None = None
    ) -> None:
        self._clock = clock
        self._max_bytes = max_bytes
        self._shared = shared
        self._drops = 0
        self._size = 0
        self._values: dict[str, tuple[int, Cached]] = {}
        self._expirations: list[tuple[int, str]] = []
        # The engine of the embedded store serves several event loops, each in its own thread.
        self._lock = threading.Lock()

    async def get(self, key: str) -> Cached | None:
        with self._lock:
            self._evict(self._clock.micros())
            entry, before = self._values.get(key), self._drops
        return None if entry is None or await self.drops() != before else entry[1]

    async def drops(self) -> int:
        if self._shared is not None:
            self._empty_after(await self._shared.drops())
        return self._drops

    async def put(
        self, key: str, cached: Cached, ttl: timedelta, *, drops: int | None = None
    ) -> None:
        expires_at = cached.kept_at + ttl // MICROSECOND
        current = await self.drops()
        with self._lock:
            if (current if drops is None else drops) != self._drops:
                return
            self._drop(key)
            self._values[key] = (expires_at, cached)
            self._size += len(cached.value)
            heappush(self._expirations, (expires_at, key))
            self._evict(self._clock.micros())

    async def drop(self, *prefixes: str) -> None:
        if self._shared is None:
            self._empty_after(self._drops + 1)
        else:
            await self._shared.drop(*prefixes)
            await self.drops()

    def _empty_after(self, drops: int) -> None:
        """Empty the cache if there was a drop since its values were stored."""
        with self._lock:
            if drops != self._drops:
                self._values.clear()
                self._expirations.clear()
                self._size, self._drops = 0, drops

    def _evict(self, now: int) -> None:
        """Drop expired values, and the next ones to expire while the cache is too large."""
        while self._expirations and (
            self._expirations[0][0] <= now or self._size > self._max_bytes
        ):
            expires_at, key = heappop(self._expirations)
            entry = self._values.get(key)
            # A newer value under this key has its own expiration.
            if entry is not None and entry[0] == expires_at:
                self._drop(key)

    def _drop(self, key: str) -> None:
        entry = self._values.pop(key, None)
        if entry is not None:
            self._size -= len(entry[1].value)
