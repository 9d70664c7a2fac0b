"""Gauges of the backlog: events, dead letters and held partitions, updated by a worker."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sized
from datetime import datetime

from prometheus_client import Gauge

from headwater.core.clock import Clock
from headwater.core.logging import Outage, log
from headwater.errors import BackendError
from headwater.ports import Backends

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

_BY_GROUP = (GROUP_LAG_EVENTS, GROUP_LAG_SECONDS, GROUP_WORKERS)
_SHARED = (LAG_EVENTS, LAG_SECONDS, DEAD_LETTERS_WAITING, UNOWNED_PARTITIONS)
_PAUSE_SECONDS = 5.0
# Counting a long log takes long, and must not take most of the time; but a measurement that one
# slow answer held up must not leave old numbers for minutes.
_PAUSE_PER_MEASUREMENT = 50
_LONGEST_PAUSE_SECONDS = 60.0
# A group whose only worker is being restarted is not abandoned.
_ABANDONED_SECONDS = 60.0


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
            pause = _PAUSE_SECONDS
            try:
                await _measure(backends, clock)
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


async def _measure(backends: Backends, clock: Clock) -> None:
    lags, letters = await backends.bus.lag(), await backends.dead_letters.count()
    LAG_EVENTS.set(sum(lag.waiting for lag in lags))
    LAG_SECONDS.set(max(_age(lag.oldest_at, clock) for lag in lags))
    DEAD_LETTERS_WAITING.set(letters)
    UNOWNED_PARTITIONS.set(sum(lag.owner is None for lag in lags))


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
