"""The partitions that a worker holds: heartbeats, claims, releases, and changes of versions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable

from headwater.core.logging import log
from headwater.core.partitioning import assigned_partitions
from headwater.declarations.run_set import without_code
from headwater.engine.engine import Engine
from headwater.engine.worker.lanes import Lane
from headwater.engine.worker.running_versions import RunningVersions
from headwater.errors import BackendError, LeaseLostError


class HeldPartitions:
    """The lanes of one worker, and the partitions that are assigned to it."""

    def __init__(self) -> None:
        self._worker = ""
        self._only_there: list[str] | None = None
        """The features that only other workers declare, while this one waits because of them."""
        self._claiming = asyncio.Lock()
        self._unanswered: Collection[int] = ()
        self._alive_until = 0.0
        self.lanes: dict[int, Lane] = {}
        self.assigned: frozenset[int] = frozenset()
        self.is_changing_versions = False
        """Whether no batch may begin, because other versions of features have to run."""
        self.is_retiring = False
        self.changed = asyncio.Event()
        """Set when a batch may be able to begin."""
        self.due = asyncio.Event()
        """Set when partitions may have to be claimed or released."""

    @property
    def is_alive(self) -> bool:
        """Whether the last heartbeat is in time."""
        return time.monotonic() <= self._alive_until

    def at_work(self) -> list[Lane]:
        return [lane for lane in self.lanes.values() if lane.task]

    def end(self, lane: Lane) -> None:
        """End the work of a lane."""
        lane.task = None
        self.changed.set()
        if self.is_changing_versions or lane.lease.partition not in self.assigned:
            self.due.set()

    def lose(self, error: LeaseLostError) -> None:
        """Give up a lane whose lease another worker has."""
        log.warning("lease lost", partition=error.partition, worker=self._worker)
        self.lanes.pop(error.partition, None)
        self.due.set()

    async def register(self, worker: str, engine: Engine, versions: RunningVersions) -> None:
        """List the worker with the versions of features that it runs."""
        self._worker = worker
        run_set = versions.run_set
        await engine.backends.leases.register(worker, run_set.declared, run_set.code)
        versions.registered()

    async def update(self, engine: Engine, versions: RunningVersions) -> None:
        """Send a heartbeat, and hold the partitions that are assigned to this worker."""
        async with self._claiming:
            await self._follow(engine, versions)
            await self._rebalance(engine, versions)

    async def _follow(self, engine: Engine, versions: RunningVersions) -> None:
        """Run other versions of features when the catalog names others and no batch is at work.

        Meanwhile no batch begins. Lanes in quarantine are kept, because their state would be lost.
        """
        await versions.follow()
        self.is_changing_versions = versions.is_outdated
        if versions.joiner.is_done and all(lane.is_joined for lane in self.lanes.values()):
            await versions.joiner.leave()
        if versions.is_outdated and not self.at_work():
            await self.release(engine, [x for x in self.lanes.values() if not x.quarantined])
            versions.apply()
            for partition, lane in self.lanes.items():
                lane.is_joined = not versions.joiner.is_due(partition)
            await self.register(self._worker, engine, versions)
            self.is_changing_versions = False

    async def _rebalance(self, engine: Engine, versions: RunningVersions) -> None:
        bus, leases = engine.backends.bus, engine.backends.leases
        living = await leases.heartbeat(self._worker, [lane.lease for lane in self.lanes.values()])
        self._alive_until = time.monotonic() + engine.settings.worker.lease_ttl
        if self.is_retiring:
            return
        is_noted = versions.noted.is_set()
        await versions.note_current(await leases.current_set(self._worker))
        if not is_noted:
            self.changed.set()
        is_waiting = self._worker not in living
        if is_waiting != (self._only_there is not None):
            await self._report(engine, versions.run_set.declared, is_waiting=is_waiting)
        # One partition more than the entities' carries the ticks of SQL features.
        partitions = 0 if versions.other_code else bus.partitions + 1
        assigned = self.assigned = assigned_partitions(self._worker, living, partitions)
        surplus = [
            lane
            for partition, lane in self.lanes.items()
            # A quarantined one is kept until it is cleared: released, it would seem harmless.
            if partition not in assigned and lane.task is None and not lane.quarantined
        ]
        await self.release(engine, surplus)
        missing = assigned - self.lanes.keys()
        if missing:
            self._unanswered = missing
            claimed = await leases.claim(self._worker, missing)
            # Other workers may have begun to run other versions in these partitions.
            await versions.check()
            self.is_changing_versions = versions.is_outdated
            size, is_due = engine.settings.worker.batch_size, versions.joiner.is_due
            for lease in claimed:
                is_joined = not is_due(lease.partition)
                self.lanes[lease.partition] = Lane(lease, size, is_joined=is_joined)
            self._unanswered = ()
            self.changed.set()

    async def _report(self, engine: Engine, here: frozenset[str], *, is_waiting: bool) -> None:
        """Log that the worker waits because others declare more features, or that it resumes."""
        if not is_waiting:
            log.warning(
                "worker resumes: no others declare more features",
                worker=self._worker,
                not_run=self._only_there,
            )
            self._only_there = None
            return
        there = await engine.backends.leases.current_set(self._worker)
        ours, theirs = {*map(without_code, here)}, {*map(without_code, there)}
        changed = ours & {without_code(declaration) for declaration in there - here}
        self._only_there = sorted(
            {*theirs - ours, *(f"{declaration} (other code)" for declaration in changed)}
        )
        # A feature that only this worker declares is not run while it waits.
        names = {"only_there": self._only_there, "only_here": sorted(ours - theirs)}
        if names["only_here"]:
            log.warning("worker waits: others declare more features", worker=self._worker, **names)
        else:
            log.info("worker waits: others declare more features", worker=self._worker, **names)

    async def release(self, engine: Engine, lanes: Iterable[Lane]) -> None:
        """Release idle lanes; their next owners may claim them at once."""
        released = list(lanes)
        for lane in released:
            del self.lanes[lane.lease.partition]
        # Quarantined lanes are not released: their next owner has to quarantine them as well.
        leases = [lane.lease for lane in released if not lane.quarantined]
        if leases:
            await engine.backends.leases.release(leases)

    async def finish(self, engine: Engine, seconds: float) -> None:
        """Release partitions as their batches end; abandon late batches, which will run again."""
        try:
            async with asyncio.timeout(seconds):
                async with self._claiming:  # partitions that are being claimed are released, too
                    await engine.backends.leases.retire(self._worker)
                while self.lanes:
                    await self.release(engine, [x for x in self.lanes.values() if x.task is None])
                    if busy := [lane.task for lane in self.lanes.values() if lane.task]:
                        await asyncio.wait(busy, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            log.warning("batches abandoned; they will run again", partitions=sorted(self.lanes))
        except BackendError as error:
            log.error("could not release partitions; their leases will expire", error=str(error))
        for lane in self.lanes.values():
            if lane.task is not None:
                lane.task.cancel()

    async def deregister(self, engine: Engine, versions: RunningVersions, *, release: bool) -> None:
        """End the membership of the worker; without release, its partitions become suspect."""
        leases = [lane.lease for lane in self.lanes.values() if not lane.quarantined]
        self.lanes.clear()
        try:
            if release and self._unanswered:
                # A claim was cut off: the worker may hold leases that it does not know of.
                leases += await engine.backends.leases.claim(self._worker, self._unanswered)
            if release and leases:
                await engine.backends.leases.release(leases)
            await engine.backends.leases.deregister(self._worker)
            await versions.joiner.leave()
        except BackendError as error:
            log.error(
                "could not deregister worker; its leases will expire",
                worker=self._worker,
                error=str(error),
            )
