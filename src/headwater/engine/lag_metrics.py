"""What waits at present, as gauges that a worker keeps up to date while it runs."""

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

LAG_EVENTS = Gauge("headwater_lag_events", "Events that wait to be committed.")
LAG_SECONDS = Gauge("headwater_lag_seconds", "Age of the oldest event that waits.")
DEAD_LETTERS_WAITING = Gauge(
    "headwater_dead_letters_waiting", "Dead letters that wait for a decision."
)
OWNED_PARTITIONS = Gauge("headwater_owned_partitions", "Partitions that this process holds.")

_SHARED = (LAG_EVENTS, LAG_SECONDS, DEAD_LETTERS_WAITING)
_PAUSE_SECONDS = 5.0
# A long log takes long to count, and counting must not become the work.
_PAUSES_PER_LOOK = 50


def _forget() -> None:
    """Says that nothing is known: a zero would be good news."""
    for gauge in _SHARED:
        gauge.set(math.nan)


_forget()


async def keep_current(backends: Backends, clock: Clock, held: Sized, outage: Outage) -> None:
    """Looks every few seconds what waits; ``held`` has the partitions of this process."""
    OWNED_PARTITIONS.set_function(lambda: len(held))
    try:
        while True:
            began = time.perf_counter()
            pause = _PAUSE_SECONDS
            try:
                await _look(backends, clock)
            except BackendError as error:
                _forget()
                outage.tell("warning", "what waits could not be counted", error, "gauges")
            else:
                outage.over("gauges")
                pause = max(pause, (time.perf_counter() - began) * _PAUSES_PER_LOOK)
            await asyncio.sleep(pause)
    finally:
        _forget()


async def _look(backends: Backends, clock: Clock) -> None:
    lags, letters = await backends.bus.lag(), await backends.dead_letters.count()
    now = clock.now()
    ages = [(now - lag.oldest_at).total_seconds() for lag in lags if lag.oldest_at]
    LAG_EVENTS.set(sum(lag.waiting for lag in lags))
    # The server's clock may be ahead of ours.
    LAG_SECONDS.set(max([0.0, *ages]))
    DEAD_LETTERS_WAITING.set(letters)
