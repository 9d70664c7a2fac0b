"""The worker: it holds partitions, runs the handlers of their events and commits the outcomes."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from hashlib import sha256
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec.structs import asdict, replace

from headwater.core.clock import EPOCH
from headwater.core.logging import Outage, log
from headwater.declarations.definitions import definition_of
from headwater.declarations.features import FeatureDef
from headwater.declarations.run_set import RunSet
from headwater.declarations.runtime import HasRuntime, runtime_of
from headwater.engine.engine import Engine
from headwater.engine.objectives import note_counts
from headwater.engine.worker.batch import run_batch
from headwater.engine.worker.contention import Contention, note_contention
from headwater.engine.worker.held_partitions import HeldPartitions
from headwater.engine.worker.joining import Joiner
from headwater.engine.worker.lanes import Lane, QuarantineScheduler, run_quarantined
from headwater.engine.worker.periodic_work import (
    Scheduler,
    maintain_history,
    maintain_indexes,
    prune_nightly,
    renew_states,
    update_gauges,
)
from headwater.engine.worker.running_versions import (
    RunningVersions,
    offer_backfills,
    settle_missed,
)
from headwater.engine.worker.watchdog import Watchdog
from headwater.errors import (
    BackendError,
    BackendUnavailableError,
    CodeChangedError,
    LeaseLostError,
    TooManyHungThreadsError,
    VersionConflictError,
)
from headwater.features.schedule import REFRESH, due_of
from headwater.features.services import Services
from headwater.history.retention import Retention, warn_of_pruned
from headwater.model.health import Health
from headwater.model.values import new_id
from headwater.ports import Batch, Cached
from headwater.retrieval.indexing import preload

T = TypeVar("T")
Touches = Mapping[str, frozenset[str]]
_MAX_HEARTBEAT_SECONDS = 0.5
_BACKEND_PAUSE = 1.0
_DRAIN_STEPS = ("partitions", "joining", "events", "commits")
_DRAIN_PATIENCE = 30.0
"""For how many seconds a step of a drain may fail, so that it outlasts a failover."""
_JOIN_PAUSE = 0.1
_KEY = "declared-queries"
_KEPT = timedelta(days=3650)
# White space, or a text in which it counts: a literal, a quoted name, a comment.
_SPACE = re.compile(r"""\s+|'[^']*'|"[^"]*"|(\$\w*\$).*?\1|--[^\n]*\n?""", re.DOTALL)
_decode = msgspec.json.Decoder(dict[str, str]).decode


class Opens(Protocol):
    """The part of a store's runtime that a worker needs."""

    async def open(self) -> Engine: ...


class Worker:
    """Keeps the features of a store fresh while it runs; several workers share the partitions.

    Events of one entity are handled in order, events of different entities concurrently. The
    outcome of a batch and the position after it are committed together, so a worker may be killed
    at any point.

    With ``owns_process``, the worker ends its process if a handler blocks the event loop for longer
    than ``worker.handler_timeout``, and ends if ``worker.max_hung_threads`` threads hang. Without
    it, as in an application, it only logs them.
    """

    def __init__(
        self, store: HasRuntime[Opens], *, owns_process: bool = False, is_alone: bool = False
    ) -> None:
        """``is_alone`` says that no server reports what the process counts."""
        self._owns_process = owns_process
        self._is_alone = is_alone
        self._failure: Exception | None = None
        self.name = f"{socket.gethostname()}-{os.getpid()}-{new_id()[-12:]}"
        self._runtime = runtime_of(store)
        self._held = HeldPartitions()
        self._quarantine = QuarantineScheduler()
        self._contention = Contention()
        self._draining = False
        self._drains_until = EPOCH
        self._goals: list[int] | None = None
        """How many events have to be committed in each partition until all is drained."""
        self._stopping = asyncio.Event()
        self._outage = Outage("events")

    def stop(self) -> None:
        """Ask the worker to finish its running batches and to return from ``run``.

        >>> worker = Worker(store)
        >>> worker.stop()
        >>> await worker.run()
        """
        self._stopping.set()
        self._held.is_retiring = True
        self._held.changed.set()

    def health(self) -> Health:
        """Return whether the worker runs, its heartbeat is in time, and it was not stopped."""
        if self._stopping.is_set():
            return Health("worker", ok=False, detail="stopping after its running batches")
        if not self._held.is_alive:
            detail = "heartbeat overdue; other workers may claim this worker's partitions"
            return Health("worker", ok=False, detail=detail)
        return Health("worker", ok=True)

    async def run(self) -> None:
        """Consume events until stopped, then finish the running batches.

        >>> worker = Worker(store)
        >>> running = asyncio.create_task(worker.run())
        >>> worker.stop()
        >>> await running
        """
        engine = await self._open()
        if not self._draining:
            _check_retention(engine)
            await engine.refresh.check_queries()
            if engine.registry.all_indexes():
                await preload()
        scheduler = Scheduler(engine, self._outage)
        versions = RunningVersions(engine, self._outage)
        register = partial(self._register, engine, versions)
        await self._retry(register, "registering failed; retrying")
        log.info("worker started", worker=self.name)
        release = True
        try:
            if self._draining:
                self._drains_until = engine.clock.now()
                await scheduler.tick(self._drains_until)
            deadline = engine.feature_calls.deadline
            watchdog = Watchdog(deadline, owns_process=self._owns_process)
            async with asyncio.TaskGroup() as group:
                settling = group.create_task(settle_missed(engine, versions.noted))
                helpers = self._helpers(engine, versions, scheduler)
                running = [settling, *map(group.create_task, helpers)]
                with watchdog:
                    await self._read(engine, group, versions)
                    limits = engine.settings.worker
                    # When too many threads hang, running batches are committed, or the next worker
                    # would lose as many threads to them. The last call may just have begun.
                    is_hung = isinstance(self._failure, TooManyHungThreadsError)
                    hung = limits.handler_timeout if is_hung else 0.0
                    await self._held.finish(engine, limits.drain_timeout + hung)
                if self._draining and versions.noted.is_set():
                    await settling
                for helper in running:
                    helper.cancel()
        except BaseExceptionGroup:
            # An event may be the cause: its partition stays unreleased, so the next owner
            # quarantines its events.
            release = False
            raise
        finally:
            await self._held.deregister(engine, versions, release=release)
            log.info("worker stopped", worker=self.name)
        if self._failure is not None:
            raise self._failure

    def _helpers(
        self, engine: Engine, versions: RunningVersions, scheduler: Scheduler
    ) -> list[Coroutine[Any, Any, None]]:
        """Return the tasks that run next to the batches until the worker stops."""
        lanes, feeder = self._held.lanes, engine.backends.feeder
        helpers = [
            self._hold_partitions(engine, versions),
            self._listen(engine),
            maintain_history(engine),
            maintain_indexes(engine, lanes),
            prune_nightly(engine),
            update_gauges(engine.backends, engine.clock, lanes, self._outage),
            offer_backfills(engine, versions.new),
            note_contention(engine, self._contention),
        ]
        if not self._draining:
            helpers += [scheduler.run(self._stopping), renew_states(engine, lanes)]
        if self._is_alone and any(asdict(engine.settings.objectives).values()):
            helpers.append(note_counts(engine.backends.notes, engine.clock, self.name))
        if feeder is not None:
            helpers.append(feeder.run(lanes, engine.registry.subjects))
        return helpers

    async def drain(self) -> None:
        """Consume events and the ticks that are due now until none waits, here or elsewhere.

        Raise the error of a server if it does not pass, as one of a missing right.
        """
        self._draining = True
        await self.run()

    async def open(self) -> None:
        """Open the store, and load what a start needs, which would delay requests to this process.

        While a server of the store is unavailable, wait and try again.

        >>> await Worker(store).open()
        """
        engine = await self._open()
        if engine.registry.all_indexes():
            await preload()
        for feature in engine.registry.features.values():
            if feature.triggers or feature.refresh is not None:
                definition_of(feature)  # kept by the function

    async def _open(self) -> Engine:
        return await self._retry(
            self._runtime.open, "opening the store failed; retrying", BackendUnavailableError
        )

    async def _register(self, engine: Engine, versions: RunningVersions) -> None:
        if not self._draining:
            await report_changes(engine)
        await versions.prepare()
        if self._draining:
            await versions.outlast_leaving()
            if versions.other_code:
                raise CodeChangedError(versions.other_code)
        await self._held.register(self.name, engine, versions)

    async def _retry(
        self,
        step: Callable[[], Awaitable[T]],
        problem: str,
        passing: type[BackendError] = BackendError,
    ) -> T:
        """Take a step of the start, again after each passing error."""
        while True:
            try:
                result = await step()
            except passing as error:
                if self._draining or self._stopping.is_set():
                    raise
                self._outage.report("error", problem, error, "start")
                log.flush()
                await asyncio.sleep(_BACKEND_PAUSE)
            else:
                self._outage.recovered("start")
                return result

    async def _read(
        self, engine: Engine, group: asyncio.TaskGroup, versions: RunningVersions
    ) -> None:
        """Start the next batches of idle lanes until stopped."""
        while not self._stopping.is_set():
            self._held.changed.clear()
            for idle in self._held.lanes.values():
                if not (idle.is_joined or idle.task or self._held.is_changing_versions):
                    idle.task = group.create_task(self._join(versions.joiner, idle))
            try:
                batches = await self._next_batches(engine, versions.run_set.touches)
                drained = False
                if self._draining:
                    batches, later = self._due(engine, batches)
                    is_idle = not (batches or self._held.at_work()) and versions.noted.is_set()
                    drained = is_idle and await self._is_drained(engine, later)
            except LeaseLostError as error:
                self._held.lose(error)
                continue
            except BackendError as error:
                self._outage.report("error", "reading events failed; retrying", error, "events")
                await asyncio.sleep(_BACKEND_PAUSE)
                continue
            self._outage.recovered("events")
            for batch in batches:
                lane = self._held.lanes.get(batch.lease.partition)
                if lane is None or lane.lease != batch.lease:
                    continue  # lost while its events were being read; the next owner runs them
                if (
                    lane.is_joined
                    and not self._held.is_changing_versions
                    and (lane.quarantined or self._contention.takes_turn(lane))
                ):
                    lane.task = group.create_task(self._run(engine, versions.run_set, lane, batch))
            if drained:
                self.stop()
            elif not batches:
                await self._held.changed.wait()

    def _due(self, engine: Engine, batches: list[Batch]) -> tuple[list[Batch], set[int]]:
        """Return the batches to run in a drain, and the partitions in which only later ticks wait.

        Those are the ticks that were not due when the drain began.
        """
        later = {
            batch.lease.partition
            for batch in batches
            if all(
                event.event_type == REFRESH and due_of(event).due > self._drains_until
                for event in (delivery.event for delivery in batch.deliveries)
            )
        }
        due = [batch for batch in batches if batch.lease.partition not in later]
        if due:
            self._goals = None  # their handlers may publish events
        if sum(len(batch.deliveries) for batch in batches) < engine.settings.worker.batch_size:
            return due, later
        return batches, later  # as many as a read returns hide the events of other partitions

    async def _is_drained(self, engine: Engine, later: Collection[int]) -> bool:
        """Return whether all is committed that waited when this worker became idle.

        Of the partitions ``later``, only later ticks are left.
        """
        lags = await engine.backends.bus.lag()
        if self._goals is None:
            self._goals = [lag.committed + lag.waiting for lag in lags]
        return all(
            lag.committed >= goal or lag.partition in later
            for lag, goal in zip(lags, self._goals, strict=True)
        )

    async def _join(self, joiner: Joiner, lane: Lane) -> None:
        try:
            lane.is_joined = await joiner.join(lane.lease.partition)
            if not lane.is_joined:
                await asyncio.sleep(_JOIN_PAUSE)
        except BackendError as error:
            self._outage.report("error", "joining failed; retrying", error, "joining")
            await asyncio.sleep(_BACKEND_PAUSE)
        else:
            self._outage.recovered("joining")
        finally:
            self._held.end(lane)

    async def _next_batches(self, engine: Engine, touches: Touches) -> list[Batch]:
        at_work = self._held.at_work()
        if self._held.is_changing_versions or any(lane.quarantined for lane in at_work):
            return []
        if not self._quarantine.is_others_turn():
            quarantined = await self._next_quarantined(engine, touches, at_work)
            if quarantined is not None:
                return quarantined
        # A partition assigned to another worker gets no further batch and is released soon.
        held = [
            lane
            for partition, lane in self._held.lanes.items()
            if lane.is_joined and not lane.quarantined and partition in self._held.assigned
        ]
        self._contention.retain(held)
        idle = [lane for lane in held if not lane.task and self._contention.may_read(lane)]
        size = engine.settings.worker.batch_size
        batches = await engine.backends.bus.read([lane.lease for lane in idle], size, touches)
        if sum(len(batch.deliveries) for batch in batches) < size:
            self._contention.skip(idle, batches)
        if batches or at_work:
            return batches
        return await self._next_quarantined(engine, touches, []) or []

    async def _next_quarantined(
        self, engine: Engine, touches: Touches, at_work: Sequence[Lane]
    ) -> list[Batch] | None:
        """Return the next quarantined event if no lane is at work; None if none waits.

        An empty list means that one waits until the lanes at work have finished.
        """
        bus = engine.backends.bus
        for lane in [x for x in self._held.lanes.values() if x.quarantined and x.is_joined]:
            is_busy = bool(at_work) and lane.is_waiting
            deliveries = [] if is_busy else await bus.read([lane.lease], 1, touches)
            lane.is_waiting = is_busy or bool(deliveries)
            if lane.is_waiting and at_work:
                # A worker's death would be blamed on the events at work as well.
                self._quarantine.hold_others()
                return []
            if lane.is_waiting:
                self._quarantine.begin_quarantine()
                return deliveries
            lane.quarantined = 0
        self._quarantine.end_quarantine()
        return None

    async def _run(self, engine: Engine, run_set: RunSet, lane: Lane, batch: Batch) -> None:
        """Run one batch and commit it; a batch that was not committed is read again."""
        is_quarantined, began = lane.quarantined > 0, time.monotonic()
        size = self._contention.size(lane)
        if len(batch.deliveries) > size:
            batch = replace(batch, deliveries=batch.deliveries[:size])
        try:
            if is_quarantined:
                outcome = await run_quarantined(engine, run_set, lane, batch)
            else:
                outcome = await run_batch(engine, run_set, batch, lane.runs)
            try:
                await engine.backends.bus.commit(outcome)
            except VersionConflictError as error:
                self._outage.recovered("commits")
                lane.runs.keep()
                self._contention.conflicted(lane, outcome, error.changed)
                return
            self._outage.recovered("commits")
            lane.runs.drop(batch)
            lane.quarantined -= is_quarantined
            pause = self._contention.committed(lane, outcome, time.monotonic() - began)
            if pause:
                await asyncio.sleep(pause)
            self._contention.end_turn(lane)
        except LeaseLostError as error:
            self._outage.recovered("commits")
            self._held.lose(error)
        except BackendError as error:
            # The commit may have succeeded: reading the lane again shows it.
            self._outage.report("error", "commit failed; retrying", error, "commits")
            await asyncio.sleep(_BACKEND_PAUSE)
        finally:
            if is_quarantined:
                self._quarantine.event_ended()
            self._held.end(lane)

    async def _listen(self, engine: Engine) -> None:
        """Wake the reading loop when new events or workers arrive."""
        while True:
            wait = engine.backends.bus.wait(self.name, engine.settings.worker.poll_interval)
            try:
                if await wait:
                    self._held.due.set()
            except BackendError as error:
                self._outage.report(
                    "error", "waiting for new events failed; retrying", error, "new events"
                )
                await asyncio.sleep(_BACKEND_PAUSE)
            else:
                self._outage.recovered("new events")
            self._held.changed.set()

    async def _hold_partitions(self, engine: Engine, versions: RunningVersions) -> None:
        """Send heartbeats, and hold the partitions that are assigned to this worker."""
        interval = min(_MAX_HEARTBEAT_SECONDS, engine.settings.worker.lease_ttl / 4)
        while True:
            with self._outage.reporting("error", "heartbeat failed; retrying", "partitions"):
                await self._held.update(engine, versions)
            if self._draining and (error := self._outage.lasting(_DRAIN_STEPS, _DRAIN_PATIENCE)):
                self._failure = error
                self.stop()
            if self._owns_process and self._failure is None and engine.offload.is_exhausted:
                limit = engine.settings.worker.max_hung_threads
                self._failure = TooManyHungThreadsError(engine.offload.hung(), limit)
                log.error("worker stops: too many hung threads", reason=str(self._failure))
                self.stop()
            with suppress(TimeoutError):
                async with asyncio.timeout(interval):
                    await self._held.due.wait()
            self._held.due.clear()


async def report_changes(services: Services) -> None:
    """Log each feature that was declared with another query before."""
    cache, features = services.backends.notes, services.registry.features
    stored = await cache.get(_KEY)
    before = _decode(stored.value) if stored else {}
    declared = {
        name: _query(feature) for name, feature in features.items() if feature.sql is not None
    }
    for name, query in declared.items():
        if before.get(name, query) != query:
            log.warning(
                "feature has another query",
                feature=name,
                remedy="values of the old query stay until the next run; `headwater refresh` "
                "runs it",
            )
    if declared.items() - before.items():
        queries = msgspec.json.encode(before | declared)
        await cache.put(_KEY, Cached(queries, services.clock.micros()), _KEPT)


def _query(feature: FeatureDef) -> str:
    """Return a hash of a query, in which white space counts only where it matters."""
    query = _SPACE.sub(lambda part: " " if part[0].isspace() else part[0], feature.sql or "")
    return sha256(query.strip().encode()).hexdigest()[:16]


def _check_retention(engine: Engine) -> None:
    """Refuse to remove history that windows need, and warn of history that was removed before."""
    features, state = engine.registry.features, engine.catalog.state
    Retention.configured(engine.settings.retention).check_windows(features, state)
    warn_of_pruned(features, state, engine.clock.now())
