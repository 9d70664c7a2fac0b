"""Leases of embedded workers: owners and epochs in the cursor table."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence

from headwater.backends.sqlite.home import Home
from headwater.backends.sqlite.members import DeclaredSet, GroupMembers, Member, current_of
from headwater.backends.sqlite.writer import Writer
from headwater.errors import ClosedError
from headwater.ports import Lease


class SqliteLeases:
    """Leases of partitions, held by workers that hold their file lock."""

    def __init__(self, home: Home, writer: Writer, group: str, lease_ttl: float) -> None:
        self._home = home
        self._writer = writer
        self._group = group
        self._group_members = GroupMembers(home.workers, group, lease_ttl)
        self._members: dict[str, Member] = {}
        self.cursors: dict[int, int] = {}
        """The position of each partition of this process, as of its claim or last commit."""

    async def register(self, worker: str, declared: Collection[str] = (), code: str = "") -> None:
        if worker in self._members:
            self._members[worker].declared, self._members[worker].code = declared, code
        else:
            with self._home.translated():
                self._members[worker] = Member(self._home.workers, worker, declared, code)
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

    def member(self, worker: str) -> Member:
        """Return the registered worker of this name; raise ClosedError if there is none."""
        try:
            return self._members[worker]
        except KeyError:
            raise ClosedError(f"worker {worker} is not registered") from None

    def close(self) -> None:
        for member in self._members.values():
            member.close()
        self._members.clear()
