"""A cache of bounded size in SQLite, shared by all processes of a home."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import timedelta

from headwater.backends.sqlite.home import Home
from headwater.backends.sqlite.writer import Writer, erasing
from headwater.core.clock import MICROSECOND, Clock
from headwater.ports import Cached

LARGEST = 64 << 20
"""The maximum size of all values together, in bytes."""

# A process checks the total size each time it has added this fraction of the maximum.
_CHECK_FRACTION = 16
_PRUNE_LIMIT = 1_000
_PRUNE_LIMIT_ON_PUT = 10
_NEVER = 2**63 - 1

_ONE = "SELECT value, kept_at FROM cache WHERE key = ? AND expires_at > ?"
_PUT = "INSERT OR REPLACE INTO cache (key, kept_at, expires_at, size, value) VALUES (?, ?, ?, ?, ?)"
_PRUNE = """
DELETE FROM cache WHERE rowid IN (
    SELECT rowid FROM cache WHERE expires_at <= ? ORDER BY expires_at LIMIT ?
)"""
_DROP = "DELETE FROM cache WHERE substr(key, 1, ?) = ?"
_DROPS = "SELECT value FROM meta WHERE key = 'cache_drops'"
_COUNT_DROP = """
INSERT INTO meta (key, value) VALUES ('cache_drops', '1')
ON CONFLICT (key) DO UPDATE SET value = CAST(value AS INTEGER) + 1"""
# Values that expire first are removed first.
_SHRINK = """
DELETE FROM cache WHERE rowid IN (
    SELECT rowid FROM (
        SELECT rowid, sum(size) OVER (ORDER BY expires_at DESC, rowid) AS total FROM cache
    ) WHERE total > ?
)"""


class SqliteCache:
    """A cache with inline reads, and writes in the writer thread."""

    def __init__(self, home: Home, writer: Writer, clock: Clock, largest: int = LARGEST) -> None:
        self._home = home
        self._writer = writer
        self._clock = clock
        self._largest = largest
        self._added = 0

    async def get(self, key: str) -> Cached | None:
        rows = self._home.read(_ONE, (key, self._clock.micros()))
        return Cached(*rows[0]) if rows else None

    async def drops(self) -> int:
        return _counted(self._home.read(_DROPS))

    async def put(
        self, key: str, cached: Cached, ttl: timedelta, *, drops: int | None = None
    ) -> None:
        size = len(key.encode()) + len(cached.value)
        expires_at = min(cached.kept_at + ttl // MICROSECOND, _NEVER)
        row = (key, cached.kept_at, expires_at, size, cached.value)
        now = self._clock.micros()

        def job(db: sqlite3.Connection) -> None:
            if drops is not None and drops != _counted(db.execute(_DROPS).fetchall()):
                return
            # Expired values are removed even if no worker maintains the store.
            db.execute(_PRUNE, (now, _PRUNE_LIMIT_ON_PUT))
            db.execute(_PUT, row)
            self._added += size
            if self._added >= self._largest // _CHECK_FRACTION:
                self._added = 0
                db.execute(_SHRINK, (self._largest,))

        await self._writer.run(job)

    async def drop(self, *prefixes: str) -> None:
        def job(db: sqlite3.Connection) -> None:
            db.execute(_COUNT_DROP)
            with erasing(db):
                for prefix in prefixes:
                    db.execute(_DROP, (len(prefix), prefix))

        await self._writer.run(job, erases=True)

    async def prune(self) -> None:
        """Remove a bounded number of expired values."""
        now = self._clock.micros()
        expired = "SELECT 1 FROM cache WHERE expires_at <= ? LIMIT 1"
        if self._home.read(expired, (now,)):
            await self._writer.run(lambda db: db.execute(_PRUNE, (now, _PRUNE_LIMIT)).rowcount)


def _counted(rows: Sequence[tuple[str]]) -> int:
    return int(rows[0][0]) if rows else 0
