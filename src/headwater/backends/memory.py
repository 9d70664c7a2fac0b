"""A cache in the memory of one process, for values that must not be written anywhere."""

from __future__ import annotations

import threading
from datetime import timedelta
from heapq import heappop, heappush

from headwater.core.clock import MICROSECOND, Clock
from headwater.ports import Cached

MAX_BYTES = 64 << 20
"""The size limit in bytes of all values together."""


class MemoryCache:
    """A cache that evicts the values that expire first when it is full."""

    def __init__(self, clock: Clock, max_bytes: int = MAX_BYTES) -> None:
        self._clock = clock
        self._max_bytes = max_bytes
        self._size = 0
        self._values: dict[str, tuple[int, Cached]] = {}
        self._expirations: list[tuple[int, str]] = []
        # The engine of the embedded store serves several event loops, each in its own thread.
        self._lock = threading.Lock()

    async def get(self, key: str) -> Cached | None:
        with self._lock:
            self._evict(self._clock.micros())
            found = self._values.get(key)
        return None if found is None else found[1]

    async def put(self, key: str, cached: Cached, ttl: timedelta) -> None:
        expires_at = cached.kept_at + ttl // MICROSECOND
        with self._lock:
            self._drop(key)
            self._values[key] = (expires_at, cached)
            self._size += len(cached.value)
            heappush(self._expirations, (expires_at, key))
            self._evict(self._clock.micros())

    async def drop(self, prefix: str) -> None:
        with self._lock:
            for key in [key for key in self._values if key.startswith(prefix)]:
                self._drop(key)

    def _evict(self, now: int) -> None:
        """Drop expired values, and the next ones to expire while the cache is too large."""
        while self._expirations and (
            self._expirations[0][0] <= now or self._size > self._max_bytes
        ):
            expires_at, key = heappop(self._expirations)
            found = self._values.get(key)
            # A newer value under this key has its own expiration.
            if found is not None and found[0] == expires_at:
                self._drop(key)

    def _drop(self, key: str) -> None:
        found = self._values.pop(key, None)
        if found is not None:
            self._size -= len(found[1].value)
