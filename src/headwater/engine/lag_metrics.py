"""Gauges of the backlog: events, dead letters and held partitions, updated by a worker."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sized

from prometheus_client import Gauge

from headwater.core.clock import Clock
from headwater.core.logging import Outage
from headwater.errors import BackendError
from headwater.ports import Backends

LAG_EVENTS = Gauge("headwater_lag_events", "Events that are not committed yet.")
LAG_SECONDS = Gauge("headwater_lag_seconds", "Age of the oldest event that is not committed.")
DEAD_LETTERS_WAITING = Gauge(
    "headwater_dead_letters_waiting", "Dead letters that were neither redriven nor discarded."
)
OWNED_PARTITIONS = Gauge("headwater_owned_partitions", "Partitions that this process holds.")

_SHARED = (LAG_EVENTS, LAG_SECONDS, DEAD_LETTERS_WAITING)
_PAUSE_SECONDS = 5.0
# Counting a long log takes long, and must not take most of the time.
_PAUSE_PER_MEASUREMENT = 50


def _reset() -> None:
    """Set the gauges to NaN: a zero would mean that nothing waits."""
    for gauge in _SHARED:
        gauge.set(math.nan)


_reset()


async def update_gauges(backends: Backends, clock: Clock, held: Sized, outage: Outage) -> None:
    """Measure the backlog every few seconds; ``held`` has the partitions of this process."""
    OWNED_PARTITIONS.set_function(lambda: len(held))
    try:
        while True:
            began = time.perf_counter()
            pause = _PAUSE_SECONDS
            try:
                await _measure(backends, clock)
            except BackendError as error:
                _reset()
                outage.report("warning", "measuring the backlog failed; retrying", error, "gauges")
            else:
                outage.recovered("gauges")
                pause = max(pause, (time.perf_counter() - began) * _PAUSE_PER_MEASUREMENT)
            await asyncio.sleep(pause)
    finally:
        _reset()


async def _measure(backends: Backends, clock: Clock) -> None:
    lags, letters = await backends.bus.lag(), await backends.dead_letters.count()
    now = clock.now()
    ages = [(now - lag.oldest_at).total_seconds() for lag in lags if lag.oldest_at]
    LAG_EVENTS.set(sum(lag.waiting for lag in lags))
    # The server's clock may be ahead of ours.
    LAG_SECONDS.set(max([0.0, *ages]))
    DEAD_LETTERS_WAITING.set(letters)
