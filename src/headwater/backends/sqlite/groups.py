"""The consumer groups of an embedded store: their workers, their lag and their end."""

from __future__ import annotations

import sqlite3
from datetime import datetime

from headwater.backends.sqlite.home import Home
from headwater.backends.sqlite.leases import GroupMembers
from headwater.backends.sqlite.writer import Writer
from headwater.core.clock import from_micros
from headwater.errors import GroupInUseError, UnknownGroupError
from headwater.model.admin import ConsumerGroup, ConsumerLag

# The owner and position of the group in every partition, also without a cursor.
_POSITIONS = """
WITH RECURSIVE parts(partition) AS (
    SELECT 0 UNION ALL SELECT partition + 1 FROM parts WHERE partition < ?
), positions AS (
    SELECT parts.partition, c.owner, coalesce(c.seq, 0) AS seq,
        coalesce(c.committed, 0) AS committed FROM parts
    LEFT JOIN cursors c ON c.partition = parts.partition AND c.consumer_group = ?
)"""
_AFTER_ALL = 2**63 - 1
_NAMES = "SELECT consumer_group FROM cursors UNION SELECT consumer_group FROM workers ORDER BY 1"


def lag_of(home: Home, group: str) -> list[ConsumerLag]:
    """Return the lag of a group in each partition."""
    rows = home.read(
        # Only the first row of each partition is read; the others are counted in the index.
        f"{_POSITIONS} SELECT p.partition, p.owner,"
        " (SELECT count(*) FROM events e WHERE e.partition = p.partition AND e.seq > p.seq),"
        " (SELECT e.received_at FROM events e WHERE e.partition = p.partition"
        " AND e.seq > p.seq ORDER BY e.seq LIMIT 1), p.committed"
        " FROM positions p ORDER BY p.partition",
        (home.partitions, group),
    )
    return [
        ConsumerLag(partition, owner, waiting, _time(oldest), committed)
        for partition, owner, waiting, oldest, committed in rows
    ]


def backlog_of(home: Home, group: str) -> int:
    """Return the number of events that a group has not committed."""
    ((count,),) = home.read(
        f"{_POSITIONS} SELECT count(*) FROM positions p"
        " JOIN events e ON e.partition = p.partition AND e.seq > p.seq",
        (home.partitions, group),
    )
    return int(count)


class SqliteGroups:
    """The consumer groups that have workers or positions."""

    def __init__(self, home: Home, writer: Writer, lease_ttl: float) -> None:
        self._home = home
        self._writer = writer
        self._ttl = lease_ttl

    async def groups(self) -> list[ConsumerGroup]:
        return [self._group(name) for (name,) in self._home.read(_NAMES)]

    def _group(self, name: str) -> ConsumerGroup:
        lags = lag_of(self._home, name)
        ((committed_at,),) = self._home.read(
            "SELECT max(committed_at) FROM cursors WHERE consumer_group = ?", (name,)
        )
        with self._home.translated():
            members = self._members(name)
            workers = sorted(members.alive(self._home.reader.execute))
        return ConsumerGroup(
            name=name,
            workers=workers,
            waiting=sum(lag.waiting for lag in lags),
            oldest_at=min((lag.oldest_at for lag in lags if lag.oldest_at), default=None),
            committed_at=_time(committed_at),
            heartbeats=[members.heartbeat_at(worker) for worker in workers],
        )

    async def waiting(self, partition: int) -> dict[str, int]:
        names = [name for (name,) in self._home.read(_NAMES)]
        return {name: lag_of(self._home, name)[partition].waiting for name in names}

    async def drop(self, name: str) -> None:
        await self._writer.run(lambda db: self._drop(db, name))

    def _drop(self, db: sqlite3.Connection, name: str) -> None:
        names = [existing for (existing,) in db.execute(_NAMES)]
        if name not in names:
            raise UnknownGroupError(name, names)
        if workers := self._members(name).alive(db.execute):
            raise GroupInUseError(name, sorted(workers))
        for table in ("cursors", "workers", "declared_sets"):
            db.execute(f"DELETE FROM {table} WHERE consumer_group = ?", (name,))

    async def declared(self, name: str) -> dict[str, frozenset[str]]:
        with self._home.translated():
            return self._members(name).declared(self._home.reader.execute)

    def _members(self, name: str) -> GroupMembers:
        return GroupMembers(self._home.workers, name, self._ttl)

    async def create(self, name: str, like: str) -> dict[int, str]:
        ticks = self._home.partitions
        await self._writer.run(
            lambda db: db.execute(
                f"{_POSITIONS} INSERT OR IGNORE INTO cursors (consumer_group, partition, seq)"
                # The group holds back no tick.
                " SELECT ?, partition, iif(partition = ?, ?, seq) FROM positions",
                (ticks, like, name, ticks, _AFTER_ALL),
            )
        )
        return await self.positions(name)

    async def positions(self, name: str) -> dict[int, str]:
        rows = self._home.read(
            f"{_POSITIONS} SELECT partition, seq FROM positions", (self._home.partitions - 1, name)
        )
        return {partition: str(seq) for partition, seq in rows}


def _time(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)
