"""Leases of embedded workers: one locked file per worker, and owners in the cursor table.

All workers of an embedded store run on one machine, so the kernel knows which of them are alive: it
releases the file lock of a dead worker immediately. The modification time of the file is the last
heartbeat, and shows that a live worker is not stuck.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from headwater.backends.sqlite.home import Home
from headwater.backends.sqlite.notifications import Sleeper
from headwater.backends.sqlite.writer import Writer
from headwater.errors import ClosedError
from headwater.ports import Lease

_LISTED = ".lock"
_RETIRED = ".retired"


class Member:
    """A worker of this process: its locked file and the socket that wakes it."""

    def __init__(self, folder: Path, worker: str) -> None:
        self._file = folder / f"{worker}{_LISTED}"
        # Locked before it gets its name: other processes take an unlocked file for a dead worker's.
        joining = folder / f"{worker}.joining"
        self._lock = os.open(joining, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        joining.rename(self._file)
        self.sleeper = Sleeper(folder, worker)

    def heartbeat(self) -> None:
        os.utime(self._lock)

    def retire(self) -> None:
        """Rename the file, so that the worker stays alive but is no longer listed."""
        retired = self._file.with_suffix(_RETIRED)
        if self._file != retired:
            self._file.rename(retired)
            self._file = retired

    def close(self) -> None:
        self.sleeper.close()
        self._file.unlink(missing_ok=True)
        os.close(self._lock)


class SqliteLeases:
    """Leases of partitions, held by workers that hold their file lock."""

    def __init__(self, home: Home, writer: Writer, group: str, lease_ttl: float) -> None:
        self._home = home
        self._writer = writer
        self._group = group
        self._ttl = lease_ttl
        self._members: dict[str, Member] = {}
        self.cursors: dict[int, int] = {}
        """The position of each partition of this process, as of its claim or last commit."""

    async def register(self, worker: str) -> None:
        self._members[worker] = Member(self._home.workers, worker)

    async def heartbeat(self, worker: str, leases: Sequence[Lease]) -> list[str]:
        self.member(worker).heartbeat()
        return sorted(self._live_workers([_LISTED]))

    async def claim(self, worker: str, partitions: Collection[int]) -> list[Lease]:
        others = self._others(worker)
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
        others = self._others(worker)
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
        self.member(worker).retire()

    async def deregister(self, worker: str) -> None:
        member = self._members.pop(worker, None)
        if member is not None:
            member.close()

    def member(self, worker: str) -> Member:
        """Return the registered worker of this name; raise ClosedError if there is none."""
        try:
            return self._members[worker]
        except KeyError:
            raise ClosedError(f"worker {worker} is not registered") from None

    def _others(self, worker: str) -> set[str]:
        # A worker may claim its own partitions again, for example after it dropped a lease.
        return self._live_workers([_LISTED, _RETIRED]) - {worker}

    def _live_workers(self, suffixes: Sequence[str]) -> set[str]:
        files = [file for suffix in suffixes for file in self._home.workers.glob(f"*{suffix}")]
        return {file.stem for file in files if self._is_alive(file)}

    def _is_alive(self, file: Path) -> bool:
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

    def close(self) -> None:
        for member in self._members.values():
            member.close()
        self._members.clear()
