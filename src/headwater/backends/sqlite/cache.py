"""A cache in SQLite that all processes of a home share, of bounded size."""

from __future__ import annotations

import sqlite3
from datetime import timedelta

from headwater.backends.sqlite.home import Home
from headwater.backends.sqlite.writer import Writer
from headwater.core.clock import MICROSECOND, Clock
from headwater.ports import Cached

LARGEST = 64 << 20
"""How many bytes all values may have together."""

# A process looks at the whole when it has added so much to it.
_LOOKS = 16
_PRUNED_AT_ONCE = 1_000
_PRUNED_BY_THE_WAY = 10
_NEVER = 2**63 - 1

_ONE = "SELECT value, kept_at FROM cache WHERE key = ? AND expires_at > ?"
_PUT = "INSERT OR REPLACE INTO cache (key, kept_at, expires_at, size, value) VALUES (?, ?, ?, ?, ?)"
_PRUNE = """
DELETE FROM cache WHERE rowid IN (
    SELECT rowid FROM cache WHERE expires_at <= ? ORDER BY expires_at LIMIT ?
)"""
# Those whose end is near go first, and so those that are over.
_SHRINK = """
DELETE FROM cache WHERE rowid IN (
    SELECT rowid FROM (
        SELECT rowid, sum(size) OVER (ORDER BY expires_at DESC, rowid) AS total FROM cache
    ) WHERE total > ?
)"""


class SqliteCache:
    """Reads inline, writes through the writer's thread."""

    def __init__(self, home: Home, writer: Writer, clock: Clock, largest: int = LARGEST) -> None:
        self._home = home
        self._writer = writer
        self._clock = clock
        self._largest = largest
        self._added = 0

    async def get(self, key: str) -> Cached | None:
        rows = self._home.read(_ONE, (key, self._clock.micros()))
        return Cached(*rows[0]) if rows else None

    async def put(self, key: str, cached: Cached, ttl: timedelta) -> None:
        size = len(key.encode()) + len(cached.value)
        expires_at = min(cached.kept_at + ttl // MICROSECOND, _NEVER)
        row = (key, cached.kept_at, expires_at, size, cached.value)
        now = self._clock.micros()

        def job(db: sqlite3.Connection) -> None:
            # Where nobody maintains the store, what is over still goes.
            db.execute(_PRUNE, (now, _PRUNED_BY_THE_WAY))
            db.execute(_PUT, row)
            self._added += size
            if self._added >= self._largest // _LOOKS:
                self._added = 0
                db.execute(_SHRINK, (self._largest,))

        await self._writer.run(job)

    async def prune(self) -> None:
        """Removes values whose time to live is over, a bounded number of them."""
        now = self._clock.micros()
        over = "SELECT 1 FROM cache WHERE expires_at <= ? LIMIT 1"
        if self._home.read(over, (now,)):
            await self._writer.run(lambda db: db.execute(_PRUNE, (now, _PRUNED_AT_ONCE)).rowcount)
