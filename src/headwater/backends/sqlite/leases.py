"""Consumer groups of an embedded store: their workers, leases, lag and end."""

from __future__ import annotations

import fcntl
import glob
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from headwater.backends.sqlite.home import Home
from headwater.backends.sqlite.notifications import Sleeper
from headwater.backends.sqlite.writer import Writer
from headwater.core.clock import EPOCH, from_micros
from headwater.errors import ClosedError, GroupInUseError, UnknownGroupError
from headwater.model.admin import ConsumerGroup, ConsumerLag
from headwater.ports import Lease

LISTED = ".lock"
RETIRED = ".retired"
# A set is remembered after its last worker has gone, so that a restart does not make it newer.
_REMEMBERED_SETS = 16

_decode = msgspec.json.Decoder(frozenset[str]).decode
Execute = Callable[[str, Sequence[Any]], sqlite3.Cursor]


class GroupMember:
    """A worker of this process: its locked file and the socket that wakes it."""

    def __init__(self, folder: Path, worker: str, declared: Collection[str], code: str) -> None:
        self.declared = declared
        self.code = code
        self.is_retired = False
        self._file = folder / f"{worker}{LISTED}"
        # Locked before it gets its name: other processes take an unlocked file for a dead worker's.
        joining = folder / f"{worker}.joining"
        self._lock = os.open(joining, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        joining.rename(self._file)
        self.sleeper = Sleeper(folder, worker)
        self.current_set: frozenset[str] = frozenset()

    def heartbeat(self) -> None:
        os.utime(self._lock)

    def retire(self) -> None:
        """Rename the file, so that the worker stays alive but is no longer listed."""
        if not self.is_retired:
            self._file = self._file.rename(self._file.with_suffix(RETIRED))
            self.is_retired = True

    def close(self) -> None:
        self.sleeper.close()
        self._file.unlink(missing_ok=True)
        os.close(self._lock)


class DeclaredSet(NamedTuple):
    """A set of features that workers declare, numbered as its code and it were registered."""

    number: tuple[int, int]
    features: frozenset[str]

    def replaces(self, other: DeclaredSet) -> bool:
        """Return whether this set is current if workers of both are listed."""
        if self.features > other.features:
            return True
        return self.number > other.number and not self.features < other.features


def current_of(declared: Collection[DeclaredSet]) -> DeclaredSet | None:
    """Return the set, of the code first registered last, that no other contains."""
    maximal = [one for one in declared if not any(one.features < two.features for two in declared)]
    return max(maximal, default=None, key=lambda one: one.number)


class GroupMembers:
    """The workers that are registered in one consumer group, in this and in other processes."""

    def __init__(self, folder: Path, group: str, lease_ttl: float) -> None:
        self._folder = folder
        self._group = group
        self._ttl = lease_ttl

    def join(
        self, db: sqlite3.Connection, worker: str, declared: Collection[str], code: str
    ) -> None:
        """Register a worker in the caller's transaction, and void the leases it replaces."""
        features = msgspec.json.encode(sorted(declared)).decode()
        code = code or features
        db.execute(
            "INSERT OR IGNORE INTO declared_sets (consumer_group, code, features, first)"
            " SELECT :group, :code, :features, min(first) FROM declared_sets"
            " WHERE consumer_group = :group AND code = :code",
            {"group": self._group, "code": code, "features": features},
        )
        db.execute(
            "INSERT OR REPLACE INTO workers SELECT ?, consumer_group, id FROM declared_sets"
            " WHERE consumer_group = ? AND code = ? AND features = ?",
            (worker, self._group, code, features),
        )
        db.execute("UPDATE declared_sets SET first = id WHERE first IS NULL")
        self._forget(db)
        self.void_replaced(db)

    def leave(self, db: sqlite3.Connection, worker: str) -> None:
        """Remove a worker in the caller's transaction."""
        db.execute("DELETE FROM workers WHERE worker = ?", (worker,))

    def alive(self, execute: Execute) -> set[str]:
        """Return all live workers, also the retired ones."""
        return {name for name in self._registered(execute) if self._is_alive(name, LISTED, RETIRED)}

    def heartbeat_at(self, worker: str) -> datetime:
        """Return the time of a live worker's last heartbeat."""
        for suffix in (LISTED, RETIRED):
            with suppress(FileNotFoundError):
                seconds = (self._folder / f"{worker}{suffix}").stat().st_mtime
                return datetime.fromtimestamp(seconds, UTC)
        return EPOCH  # it has just ended

    def declared(self, execute: Execute) -> dict[str, frozenset[str]]:
        """Return all live workers, and the features that each of them declares."""
        alive = self.alive(execute)
        registered = self._registered(execute)
        return {name: member.features for name, member in registered.items() if name in alive}

    def listed(self, execute: Execute, own: str = "") -> dict[str, DeclaredSet]:
        """Return the listed workers that are alive, and always the caller's own."""
        return {
            name: declared
            for name, declared in self._registered(execute).items()
            if name == own or self._is_alive(name, LISTED)
        }

    def void_replaced(self, db: sqlite3.Connection) -> None:
        """Void the leases of workers that must wait, and of unlisted ones that are replaced."""
        listed = self.listed(db.execute)
        current = current_of(listed.values())
        if current is None:
            return
        alive = self.alive(db.execute)
        replaced = [
            (name in alive, self._group, name)
            for name, declared in self._registered(db.execute).items()
            if declared != current and (name in listed or current.replaces(declared))
        ]
        # The events of a dead owner are suspect, and so are those of a partition in quarantine.
        db.executemany(
            "UPDATE cursors SET epoch = epoch + 1,"
            " owner = iif(NOT ?, owner, iif(attempts, 'replaced', NULL))"
            " WHERE consumer_group = ? AND owner = ?",
            replaced,
        )

    def _registered(self, execute: Execute) -> dict[str, DeclaredSet]:
        rows = execute(
            "SELECT w.worker, d.first, d.id, d.features FROM workers w"
            " JOIN declared_sets d ON d.id = w.declared_set WHERE w.consumer_group = ?",
            (self._group,),
        )
        return {
            name: DeclaredSet((first, number), _decode(features))
            for name, first, number, features in rows
        }

    def _forget(self, db: sqlite3.Connection) -> None:
        """Remove dead workers, and old sets that no worker declares."""
        silent = self._registered(db.execute).keys() - self.alive(db.execute)
        # The file of a worker that is only stuck is still there.
        dead = [name for name in silent if not any(self._folder.glob(f"{glob.escape(name)}.*"))]
        db.executemany("DELETE FROM workers WHERE worker = ?", [(name,) for name in dead])
        db.execute(
            "DELETE FROM declared_sets WHERE consumer_group = :group"
            " AND id NOT IN (SELECT declared_set FROM workers)"
            " AND id NOT IN (SELECT id FROM declared_sets WHERE consumer_group = :group"
            " ORDER BY id DESC LIMIT :remembered)",
            {"group": self._group, "remembered": _REMEMBERED_SETS},
        )

    def _is_alive(self, worker: str, *suffixes: str) -> bool:
        return any(self._is_locked(self._folder / f"{worker}{suffix}") for suffix in suffixes)

    def _is_locked(self, file: Path) -> bool:
        try:
            handle = os.open(file, os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return time.time() - os.fstat(handle).st_mtime < self._ttl
        else:
            file.unlink(missing_ok=True)
            file.with_suffix(".sock").unlink(missing_ok=True)
            return False
        finally:
            os.close(handle)


class SqliteLeases:
    """Leases of partitions, held by workers that hold their file lock."""

    def __init__(self, home: Home, writer: Writer, group: str, lease_ttl: float) -> None:
        self._home = home
        self._writer = writer
        self._group = group
        self._group_members = GroupMembers(home.workers, group, lease_ttl)
        self._members: dict[str, GroupMember] = {}
        self.cursors: dict[int, int] = {}
        """The position of each partition of this process, as of its claim or last commit."""

    async def register(self, worker: str, declared: Collection[str] = (), code: str = "") -> None:
        if worker in self._members:
            self._members[worker].declared, self._members[worker].code = declared, code
        else:
            with self._home.translated():
                self._members[worker] = GroupMember(self._home.workers, worker, declared, code)
        await self._writer.run(lambda db: self._group_members.join(db, worker, declared, code))

    async def heartbeat(self, worker: str, leases: Sequence[Lease]) -> list[str]:
        member = self.member(worker)
        with self._home.translated():
            member.heartbeat()
        listed = self._listed()
        if worker not in listed and not member.is_retired:
            # Its group was dropped while it was stuck.
            await self.register(worker, member.declared, member.code)
            listed = self._listed()
        current = current_of(listed.values())
        if current is None:
            return []
        member.current_set = current.features
        if listed.get(worker) == current and len({*listed.values()}) > 1:
            # This worker may have been stuck, and others may have claimed its partitions.
            await self._writer.run(self._group_members.void_replaced)
        return sorted(name for name, declared in listed.items() if declared == current)

    def _listed(self) -> dict[str, DeclaredSet]:
        with self._home.translated():
            return self._group_members.listed(self._home.reader.execute)

    async def current_set(self, worker: str) -> frozenset[str]:
        return self.member(worker).current_set

    async def claim(self, worker: str, partitions: Collection[int]) -> list[Lease]:
        with self._home.translated():
            others = self._group_members.alive(self._home.reader.execute) - {worker}
        owners = dict(
            self._home.read(
                "SELECT partition, owner FROM cursors WHERE consumer_group = ?", (self._group,)
            )
        )
        free = [partition for partition in partitions if owners.get(partition) not in others]
        if not free:
            return []
        claimed = await self._writer.run(lambda db: self._claim(db, worker, free))
        self.cursors |= {lease.partition: seq for lease, seq in claimed}
        return [lease for lease, _ in claimed]

    def _claim(
        self, db: sqlite3.Connection, worker: str, partitions: list[int]
    ) -> list[tuple[Lease, int]]:
        # Read again under the lock: a worker may have joined and claimed meanwhile.
        listed = self._group_members.listed(db.execute, worker)
        if listed.get(worker) != current_of(listed.values()):
            return []
        # A worker may claim its own partitions again, for example after it dropped a lease.
        others = self._group_members.alive(db.execute) - {worker}
        db.executemany(
            "INSERT OR IGNORE INTO cursors (consumer_group, partition) VALUES (?, ?)",
            [(self._group, partition) for partition in partitions],
        )
        claimed = []
        for partition in partitions:
            owner, epoch, seq = db.execute(
                "SELECT owner, epoch + 1, seq FROM cursors"
                " WHERE consumer_group = ? AND partition = ?",
                (self._group, partition),
            ).fetchone()
            if owner in others:
                continue
            db.execute(
                "UPDATE cursors SET owner = ?, epoch = ?"
                " WHERE consumer_group = ? AND partition = ?",
                (worker, epoch, self._group, partition),
            )
            is_suspect = owner is not None and owner != worker
            claimed.append((Lease(partition, worker, epoch, suspect=is_suspect), seq))
        return claimed

    async def release(self, leases: Sequence[Lease]) -> None:
        rows = [(self._group, lease.partition, lease.owner, lease.epoch) for lease in leases]
        await self._writer.run(
            lambda db: db.executemany(
                "UPDATE cursors SET owner = NULL"
                " WHERE consumer_group = ? AND partition = ? AND owner = ? AND epoch = ?",
                rows,
            ),
            wake=True,
        )

    async def retire(self, worker: str) -> None:
        with self._home.translated():
            self.member(worker).retire()

    async def deregister(self, worker: str) -> None:
        member = self._members.pop(worker, None)
        if member is not None:
            with self._home.translated():
                member.close()
            await self._writer.run(lambda db: self._group_members.leave(db, worker))

    def member(self, worker: str) -> GroupMember:
        """Return the registered worker of this name; raise ClosedError if there is none."""
        try:
            return self._members[worker]
        except KeyError:
            raise ClosedError(f"worker {worker} is not registered") from None

    def close(self) -> None:
        for member in self._members.values():
            member.close()
        self._members.clear()


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
