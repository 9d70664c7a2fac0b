"""A cache in the memory of one process, for what is to be written nowhere."""

from __future__ import annotations

import threading
from datetime import timedelta
from heapq import heappop, heappush

from headwater.core.clock import MICROSECOND, Clock
from headwater.ports import Cached

LARGEST = 64 << 20
"""How many bytes all values may have together."""


class MemoryCache:
    """Forgets with its process; where there is too much, those whose end is near go first."""

    def __init__(self, clock: Clock, largest: int = LARGEST) -> None:
        self._clock = clock
        self._largest = largest
        self._size = 0
        self._kept: dict[str, tuple[int, Cached]] = {}
        self._ends: list[tuple[int, str]] = []
        # The embedded store's engine serves several event loops, each in a thread of its own.
        self._lock = threading.Lock()

    async def get(self, key: str) -> Cached | None:
        with self._lock:
            self._forget(self._clock.micros())
            found = self._kept.get(key)
        return None if found is None else found[1]

    async def put(self, key: str, cached: Cached, ttl: timedelta) -> None:
        expires_at = cached.kept_at + ttl // MICROSECOND
        with self._lock:
            self._drop(key)
            self._kept[key] = (expires_at, cached)
            self._size += len(cached.value)
            heappush(self._ends, (expires_at, key))
            self._forget(self._clock.micros())

    def _forget(self, now: int) -> None:
        """Drops what is over, and what is too much."""
        while self._ends and (self._ends[0][0] <= now or self._size > self._largest):
            expires_at, key = heappop(self._ends)
            found = self._kept.get(key)
            # A value that took its place has an end of its own.
            if found is not None and found[0] == expires_at:
                self._drop(key)

    def _drop(self, key: str) -> None:
        found = self._kept.pop(key, None)
        if found is not None:
            self._size -= len(found[1].value)
