"""The loop that holds partitions, reads their events and commits what became of them."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from headwater.core.logging import Outage, log
from headwater.core.partitioning import assigned_partitions
from headwater.core.values import new_id
from headwater.declarations.runtime import HasRuntime, runtime_of
from headwater.engine.batch import give_up, run_batch
from headwater.engine.declaration_check import DeclarationCheck
from headwater.engine.engine import Engine
from headwater.engine.lag_metrics import keep_current
from headwater.engine.scheduler import Scheduler
from headwater.errors import BackendError, LeaseLostError, VersionConflictError
from headwater.ports import Batch, Health, Lease, Outcome

_LONGEST_BEAT = 0.5
_MAINTENANCE_SECONDS = 5.0
_BACKEND_PAUSE = 1.0
_CONFLICTS_BETWEEN_WARNINGS = 10
_TURN_SECONDS = 0.5


class Opens(Protocol):
    """The part of a store's runtime that a worker needs."""

    async def open(self) -> Engine: ...


class Lane:
    """One partition this worker holds; it runs one batch at a time."""

    def __init__(self, lease: Lease, batch_size: int) -> None:
        self.lease = lease
        self.task: asyncio.Task[None] | None = None
        # After a death without an outcome, the events the dead worker may have had are run alone.
        self.alone = batch_size if lease.suspect else 0
        self.conflicts = 0
        self.counted = ""
        self.attempts = 0
        self.waits = False
        """Whether an event is known to be there that has to run alone."""


class QuarantineScheduler:
    """Events that run alone and the other lanes take turns, each for as long as the other."""

    def __init__(self) -> None:
        self._alone_since: float | None = None
        self._others_until = 0.0

    def is_of_others(self) -> bool:
        return time.monotonic() < self._others_until

    def hold_others(self) -> None:
        """The others get no further batch, until an event that ran alone has its outcome."""
        self._others_until = 0.0

    def begin_alone(self) -> None:
        """From now on the others stand still."""
        self.hold_others()
        if self._alone_since is None:
            self._alone_since = time.monotonic()

    def ran_alone(self) -> None:
        """One has its outcome: it is the others' turn if they have stood still for long enough."""
        now = time.monotonic()
        since = now if self._alone_since is None else self._alone_since
        if now - since >= _TURN_SECONDS:
            self._alone_since, self._others_until = None, now + (now - since)

    def end_alone(self) -> None:
        """None is left that has to run alone."""
        self._alone_since = None


class Worker:
    """Keeps the features of a store fresh for as long as it runs; run as many as you like.

    Events of one entity are handled in order, those of different entities at the same time. What
    a batch did becomes durable together with the fact that it was done, so a worker may be killed
    at any point.
    """

    def __init__(self, store: HasRuntime[Opens]) -> None:
        self.name = f"{socket.gethostname()}-{os.getpid()}-{new_id()[-12:]}"
        self._runtime = runtime_of(store)
        self._lanes: dict[int, Lane] = {}
        self._turns = QuarantineScheduler()
        self._share: frozenset[int] = frozenset()
        self._alive_until = 0.0
        self._draining = False
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()
        self._membership_changed = asyncio.Event()
        self._sharing = asyncio.Lock()
        self._outage = Outage("events")
        self._outage_of_history = Outage("history")

    def stop(self) -> None:
        """Asks the worker to finish what it has begun and to return from ``run``."""
        self._stopping.set()
        self._changed.set()

    def health(self) -> Health:
        """Whether the worker takes part: it has begun, shows that it lives, and is to go on."""
        if self._stopping.is_set():
            return Health("worker", ok=False, detail="it finishes what it has begun, and stops")
        if time.monotonic() > self._alive_until:
            detail = "it could not show that it lives, so that others may take its partitions"
            return Health("worker", ok=False, detail=detail)
        return Health("worker", ok=True)

    async def run(self) -> None:
        """Consumes events until stopped, then finishes what it has begun."""
        engine = await self._runtime.open()
        scheduler = Scheduler(engine.registry, engine.backends.bus, engine.clock, self._outage)
        alike = DeclarationCheck(
            engine.registry,
            engine.backends.cache,
            engine.clock,
            self.name,
            engine.settings.worker.consumer_group,
        )
        await engine.backends.leases.register(self.name)
        log.info("worker started", worker=self.name)
        log.flush()
        release = True
        try:
            if self._draining:
                await scheduler.tick()
            async with asyncio.TaskGroup() as group:
                helpers = [
                    group.create_task(self._tend(engine)),
                    group.create_task(self._listen(engine)),
                    group.create_task(self._maintain(engine)),
                    group.create_task(
                        keep_current(engine.backends, engine.clock, self._lanes, self._outage)
                    ),
                    group.create_task(scheduler.run(self._stopping)),
                    group.create_task(alike.watch(self._outage)),
                ]
                await self._read(engine, group)
                await self._finish(engine)
                for helper in helpers:
                    helper.cancel()
        except BaseExceptionGroup:
            # What failed may be an event's doing: unreleased, its partition is suspect to the
            # next owner.
            release = False
            raise
        finally:
            await self._leave(engine, release=release)
            log.info("worker stopped", worker=self.name)
            log.flush()

    async def drain(self) -> None:
        """Consumes events and ticks that are due until none waits, here or in another's hands."""
        self._draining = True
        await self.run()

    async def _read(self, engine: Engine, group: asyncio.TaskGroup) -> None:
        """Gives idle lanes their next batches until told to stop."""
        while not self._stopping.is_set():
            self._changed.clear()
            try:
                batches = await self._next_batches(engine)
                drained = not batches and self._draining and await self._drained(engine)
            except LeaseLostError as error:
                self._lose(error)
                continue
            except BackendError as error:
                self._outage.tell(
                    "error", "events could not be read and will be tried again", error, "events"
                )
                await asyncio.sleep(_BACKEND_PAUSE)
                continue
            self._outage.over("events")
            for batch in batches:
                lane = self._lanes.get(batch.lease.partition)
                if lane is None or lane.lease != batch.lease:
                    continue  # given up while its events were being read; the next owner has them
                lane.task = group.create_task(self._run(engine, lane, batch))
            if drained:
                self.stop()
            elif not batches:
                await self._changed.wait()

    async def _drained(self, engine: Engine) -> bool:
        at_work = any(lane.task for lane in self._lanes.values())
        return not at_work and not await engine.backends.bus.backlog()

    async def _finish(self, engine: Engine) -> None:
        """Gives partitions back as their batches end; a late batch is given up, to be run again."""
        try:
            async with asyncio.timeout(engine.settings.worker.drain_timeout):
                async with self._sharing:  # what is being claimed is given back, too
                    await engine.backends.leases.retire(self.name)
                while self._lanes:
                    idle = [lane for lane in self._lanes.values() if lane.task is None]
                    await self._give_back(engine, idle)
                    if busy := [lane.task for lane in self._lanes.values() if lane.task]:
                        await asyncio.wait(busy, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            log.warning("batches given up, to be run again", partitions=sorted(self._lanes))
        except BackendError as error:
            log.error("partitions could not be given back", error=str(error))
        for lane in self._lanes.values():
            if lane.task is not None:
                lane.task.cancel()

    async def _give_back(self, engine: Engine, lanes: Sequence[Lane]) -> None:
        for lane in lanes:
            del self._lanes[lane.lease.partition]
        # Those under suspicion are left to `leave`, which gives them back like a dead worker's.
        leases = [lane.lease for lane in lanes if not lane.alone]
        if leases:
            await engine.backends.leases.release(leases)

    async def _next_batches(self, engine: Engine) -> list[Batch]:
        at_work = [lane for lane in self._lanes.values() if lane.task]
        if any(lane.alone for lane in at_work):
            return []
        if not self._turns.is_of_others():
            alone = await self._next_alone(engine, beside=at_work)
            if alone is not None:
                return alone
        # What is another's by right gets no further batch, and is given back at the next beat.
        idle = [
            lane.lease
            for partition, lane in self._lanes.items()
            if not (lane.task or lane.alone) and partition in self._share
        ]
        size, touches = engine.settings.worker.batch_size, engine.registry.touches
        batches = await engine.backends.bus.read(idle, size, touches)
        if batches or at_work:
            return batches
        return await self._next_alone(engine, beside=[]) or []

    async def _next_alone(self, engine: Engine, *, beside: Sequence[Lane]) -> list[Batch] | None:
        """The next event that has to run alone, when nothing is at work; None if there is none."""
        bus, touches = engine.backends.bus, engine.registry.touches
        for lane in [lane for lane in self._lanes.values() if lane.alone]:
            found = [] if beside and lane.waits else await bus.read([lane.lease], 1, touches)
            lane.waits = bool(found or (beside and lane.waits))
            if lane.waits and beside:
                # Whatever ran beside it would be blamed for a death that it did not cause.
                self._turns.hold_others()
                return []
            if lane.waits:
                self._turns.begin_alone()
                return found
            lane.alone = 0
        self._turns.end_alone()
        return None

    async def _run(self, engine: Engine, lane: Lane, batch: Batch) -> None:
        """Runs one batch; whatever keeps it from being committed, it is read again."""
        alone = lane.alone > 0
        try:
            if alone:
                await engine.backends.bus.commit(await self._run_alone(engine, lane, batch))
                lane.alone -= 1
            else:
                await engine.backends.bus.commit(await run_batch(engine, batch))
            lane.conflicts = 0
        except VersionConflictError as error:
            lane.conflicts += 1
            if lane.conflicts % _CONFLICTS_BETWEEN_WARNINGS == 0:
                log.warning("batch is run again and again", reason=str(error))
        except LeaseLostError as error:
            self._lose(error)
        except BackendError as error:
            # Read anew, it shows whether it has come through after all.
            self._outage.tell("error", "batch was not committed and is run again", error, "events")
            await asyncio.sleep(_BACKEND_PAUSE)
        finally:
            if alone:
                self._turns.ran_alone()
            lane.task = None
            self._changed.set()
            if lane.lease.partition not in self._share:
                self._membership_changed.set()

    def _lose(self, error: LeaseLostError) -> None:
        log.warning("lease lost", partition=error.partition, worker=self.name)
        self._lanes.pop(error.partition, None)
        self._membership_changed.set()

    async def _run_alone(self, engine: Engine, lane: Lane, batch: Batch) -> Outcome:
        """Runs an event that may have killed its worker, counted once for each worker it meets."""
        (delivery,) = batch.deliveries
        if lane.counted != delivery.position:
            lane.attempts = await engine.backends.bus.attempt(lane.lease, delivery.position)
            lane.counted = delivery.position
        if not lane.attempts:
            lane.alone = 1  # the owners that were taken for dead live: it is the last to run alone
        if lane.attempts > engine.settings.worker.max_deliveries:
            log.error(
                "event given up",
                event_id=delivery.event.event_id,
                partition=lane.lease.partition,
                deaths=lane.attempts - 1,
            )
            return give_up(engine, batch, lane.attempts - 1)
        return await run_batch(engine, batch)

    async def _listen(self, engine: Engine) -> None:
        """Turns news from the bus into a wake-up of the reading loop."""
        while True:
            wait = engine.backends.bus.wait(self.name, engine.settings.worker.poll_interval)
            try:
                if await wait:
                    self._membership_changed.set()
                self._outage.over("news")
            except BackendError as error:
                self._outage.tell(
                    "error", "news cannot be heard and will be asked for again", error, "news"
                )
                await asyncio.sleep(_BACKEND_PAUSE)
            self._changed.set()

    async def _tend(self, engine: Engine) -> None:
        """Shows that this worker lives, and holds the partitions that are its share."""
        interval = min(_LONGEST_BEAT, engine.settings.worker.lease_ttl / 4)
        while True:
            try:
                async with self._sharing:
                    await self._take_share(engine)
                self._outage.over("partitions")
            except BackendError as error:
                self._outage.tell("error", "partitions could not be claimed", error, "partitions")
            with suppress(TimeoutError):
                async with asyncio.timeout(interval):
                    await self._membership_changed.wait()
            self._membership_changed.clear()

    async def _take_share(self, engine: Engine) -> None:
        bus, leases = engine.backends.bus, engine.backends.leases
        living = await leases.heartbeat(self.name, [lane.lease for lane in self._lanes.values()])
        self._alive_until = time.monotonic() + engine.settings.worker.lease_ttl
        if self._stopping.is_set():
            return
        # One partition beyond the entities' own carries the ticks of SQL features.
        share = self._share = assigned_partitions(self.name, living, bus.partitions + 1)
        surplus = [
            lane
            for partition, lane in self._lanes.items()
            # One under suspicion is kept until it is cleared: handed on, it would seem innocent.
            if partition not in share and lane.task is None and not lane.alone
        ]
        await self._give_back(engine, surplus)
        missing = share - self._lanes.keys()
        if missing:
            for lease in await leases.claim(self.name, missing):
                self._lanes[lease.partition] = Lane(lease, engine.settings.worker.batch_size)
            self._changed.set()

    async def _maintain(self, engine: Engine) -> None:
        while True:
            await asyncio.sleep(_MAINTENANCE_SECONDS)
            try:
                await engine.backends.offline.maintain()
                self._outage_of_history.over("maintenance")
            except BackendError as error:
                self._outage_of_history.tell(
                    "error", "maintenance failed and will be tried again", error, "maintenance"
                )

    async def _leave(self, engine: Engine, *, release: bool) -> None:
        leases = [lane.lease for lane in self._lanes.values() if not lane.alone]
        self._lanes.clear()
        try:
            if leases and release:
                await engine.backends.leases.release(leases)
            await engine.backends.leases.deregister(self.name)
        except BackendError as error:
            # It is as if it had died: the others take over when the leases' time to live is over.
            log.error("worker left without a word", worker=self.name, error=str(error))
