"""What a worker does at intervals: publish ticks, measure the backlog, maintain and prune."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Collection, Container, Sized
from contextlib import suppress
from datetime import datetime
from functools import partial

from prometheus_client import Gauge

from headwater.core.clock import Clock
from headwater.core.logging import Outage, log
from headwater.core.partitioning import partition_of
from headwater.engine.auditing import audited
from headwater.engine.engine import Engine
from headwater.errors import BackendError
from headwater.features import schedule as ticks
from headwater.features.services import Services
from headwater.features.window_states import WindowStates
from headwater.history.retention import NightlyPruning
from headwater.ports import Backends
from headwater.settings.schema import on_servers

LAG_EVENTS = Gauge(
    "headwater_lag_events",
    "Events of the whole store that the worker's consumer group has not committed.",
)
LAG_SECONDS = Gauge(
    "headwater_lag_seconds",
    "Age of the oldest event of `headwater_lag_events`; 0 if there is none.",
)
DEAD_LETTERS_WAITING = Gauge(
    "headwater_dead_letters_waiting",
    "Dead letters of the whole store that were neither redriven nor discarded.",
)
UNOWNED_PARTITIONS = Gauge(
    "headwater_unowned_partitions",
    "Partitions of the whole store that no worker of the group holds.",
)
OWNED_PARTITIONS = Gauge("headwater_owned_partitions", "Partitions that this process holds.")

GROUP_LAG_EVENTS = Gauge(
    "headwater_group_lag_events",
    "Events of the whole store that a consumer group has not committed.",
    ["group"],
)
GROUP_LAG_SECONDS = Gauge(
    "headwater_group_lag_seconds",
    "Age of the oldest event of `headwater_group_lag_events`; 0 if there is none.",
    ["group"],
)
GROUP_WORKERS = Gauge(
    "headwater_group_workers",
    "Live workers of a consumer group; if it is 0 and the lag is not, events are kept "
    "for a group that does not handle them.",
    ["group"],
)

_MAX_WAIT_SECONDS = 60.0
_BACKEND_PAUSE = 1.0
_MAINTENANCE_SECONDS = 5.0
_PRUNING_SECONDS = 60.0
_BY_GROUP = (GROUP_LAG_EVENTS, GROUP_LAG_SECONDS, GROUP_WORKERS)
_SHARED = (LAG_EVENTS, LAG_SECONDS, DEAD_LETTERS_WAITING, UNOWNED_PARTITIONS)
_MEASURE_SECONDS = 5.0
# Counting a long log takes long, and must not take most of the time; but a measurement that one
# slow answer held up must not leave old numbers for minutes.
_PAUSE_PER_MEASUREMENT = 50
_LONGEST_PAUSE_SECONDS = 60.0
# A group whose only worker is being restarted is not abandoned.
_ABANDONED_SECONDS = 60.0


class Scheduler:
    """Publishes the ticks that are due, and waits for the next due time."""

    def __init__(self, services: Services, outage: Outage) -> None:
        self._registry = services.registry
        self._bus = services.backends.bus
        self._clock = services.clock
        self._outage = outage

    async def run(self, stopping: asyncio.Event) -> None:
        """Run until stopped."""
        while self._registry.scheduled() and not stopping.is_set():
            # One moment for both: a timer may fire early, and the wait must be for the tick that
            # was not due yet.
            now = self._clock.now()
            seconds = _BACKEND_PAUSE
            with self._outage.reporting("error", "publishing ticks failed; retrying", "ticks"):
                await self.tick(now)
                seconds = self.wait(now)
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await stopping.wait()

    async def tick(self, now: datetime) -> None:
        """Publish the ticks that are due and were not published before."""
        due = [ticks.make_tick(feature, now) for feature in self._registry.scheduled()]
        if due:
            await self._bus.publish_ticks(due)

    def wait(self, now: datetime) -> float:
        """Return the seconds from the present to the first due time after a moment."""
        next_due = min(ticks.next_due(feature, now) for feature in self._registry.scheduled())
        return min(_MAX_WAIT_SECONDS, (next_due - self._clock.now()).total_seconds())


def _reset() -> None:
    """Set the gauges to NaN: a zero would mean that nothing waits."""
    for gauge in _SHARED:
        gauge.set(math.nan)
    for gauge in _BY_GROUP:
        gauge.clear()


_reset()


async def update_gauges(backends: Backends, clock: Clock, held: Sized, outage: Outage) -> None:
    """Measure the backlog every few seconds; ``held`` has the partitions of this process."""
    OWNED_PARTITIONS.set_function(lambda: len(held))
    abandoned: set[str] = set()
    try:
        while True:
            began = time.perf_counter()
            pause = _MEASURE_SECONDS
            try:
                lags, letters = await backends.bus.lag(), await backends.dead_letters.count()
                LAG_EVENTS.set(sum(lag.waiting for lag in lags))
                LAG_SECONDS.set(max(_age(lag.oldest_at, clock) for lag in lags))
                DEAD_LETTERS_WAITING.set(letters)
                UNOWNED_PARTITIONS.set(sum(lag.owner is None for lag in lags))
                abandoned = await _measure_groups(backends, clock, abandoned)
            except BackendError as error:
                _reset()
                outage.report("warning", "measuring the backlog failed; retrying", error, "gauges")
            else:
                outage.recovered("gauges")
                earned = (time.perf_counter() - began) * _PAUSE_PER_MEASUREMENT
                pause = min(max(pause, earned), _LONGEST_PAUSE_SECONDS)
            await asyncio.sleep(pause)
    finally:
        _reset()


async def _measure_groups(backends: Backends, clock: Clock, abandoned: set[str]) -> set[str]:
    """Return the groups without workers that hold back events; warn of each new one."""
    groups = await backends.groups.groups()
    for gauge in _BY_GROUP:
        gauge.clear()
    names: set[str] = set()
    for group in groups:
        age = _age(group.oldest_at, clock)
        GROUP_LAG_EVENTS.labels(group.name).set(group.waiting)
        GROUP_LAG_SECONDS.labels(group.name).set(age)
        GROUP_WORKERS.labels(group.name).set(len(group.workers))
        if group.workers or not group.waiting or age < _ABANDONED_SECONDS:
            continue
        names.add(group.name)
        if group.name not in abandoned:
            log.warning(
                "consumer group without workers holds back events",
                group=group.name,
                waiting=group.waiting,
                oldest_at=group.oldest_at,
                committed_at=group.committed_at,
                remedy=f"start its workers, or run `headwater groups drop {group.name}`",
            )
    return names


def _age(oldest_at: datetime | None, clock: Clock) -> float:
    """Return the age of a time in seconds; not negative, as the server's clock may be ahead."""
    return 0.0 if oldest_at is None else max(0.0, (clock.now() - oldest_at).total_seconds())


async def maintain_history(engine: Engine) -> None:
    """Maintain history until cancelled, also while it cannot be."""
    outage = Outage("history")
    while True:
        await asyncio.sleep(_MAINTENANCE_SECONDS)
        with outage.reporting("error", "history maintenance failed; retrying", "worker"):
            await engine.backends.offline.maintain()


async def maintain_indexes(engine: Engine, held: Container[int]) -> None:
    """Maintain indexes until cancelled, also while they cannot be.

    An index is for the worker that holds its partition, so that only one embeds a document.
    """
    outage, partitions = Outage("indexes"), engine.backends.bus.partitions
    while True:
        await asyncio.sleep(_MAINTENANCE_SECONDS)
        with outage.reporting("error", "index maintenance failed; retrying", "worker"):
            for index in engine.registry.all_indexes().values():
                if partition_of(index.name, partitions) in held:
                    await engine.reindexer.maintain(index)


async def renew_states(engine: Engine, held: Collection[int]) -> None:
    """Make the states of windows again that are of an earlier plan, in the partitions held.

    Handlers and reads do without it, but a read of such a state is as slow as one of history.
    """
    outage, states, renewed = Outage("windows"), WindowStates(engine.backends), set()
    while True:
        with outage.reporting("error", "making states of windows again failed", "worker"):
            for family in [f for f in engine.registry.features.values() if f.windows is not None]:
                for partition in sorted(held):
                    key = (family.series, family.windows and family.windows.plan.digest, partition)
                    if key not in renewed:
                        await states.renew(family, partition, engine.clock)
                        renewed.add(key)
        await asyncio.sleep(_MAINTENANCE_SECONDS)


async def prune_nightly(engine: Engine) -> None:
    """Remove what the settings do not keep, once a day; retry while that fails."""
    pruning = NightlyPruning(
        engine.backends,
        engine.catalog,
        engine.registry,
        engine.settings.retention,
        partial(audited, engine),
        # Servers keep a table for each month, which is dropped faster than its rows are deleted.
        is_by_month=on_servers(engine.settings),
    )
    outage = Outage("pruning")
    while pruning.is_wanted:
        with outage.reporting("error", "nightly pruning failed; retrying", "worker"):
            report = await pruning.run(engine.clock.now())
            if report is not None:
                parts = {
                    "history": report.history,
                    "events": report.events,
                    "records": report.records,
                }
                rows = {name: 0 if part is None else part.rows for name, part in parts.items()}
                log.info("old rows pruned", **rows, held=list(report.held))
        await asyncio.sleep(_PRUNING_SECONDS)
