"""The state of a store in a few numbers and sentences."""

from __future__ import annotations

from headwater.api.overview import Series
from headwater.core.clock import from_micros
from headwater.engine import hour_series as hour
from headwater.engine.last_hour import STEP

_MICROS = 1_000_000


def series_of(end: int, samples: hour.Samples) -> Series:
    """Return the numbers of the last hour, the last of them of the time ``end``."""
    minutes = hour.each_minute(samples)
    return Series(
        end=from_micros(end * _MICROS),
        step_seconds=STEP,
        accepted_per_second=hour.each_rate(samples, hour.accepted),
        processed_per_second=hour.each_rate(samples, hour.committed),
        waiting=hour.each_backlog(samples, lambda each: each.waiting),
        oldest_seconds=hour.each_backlog(samples, lambda each: each.oldest_seconds),
        dead_letters=hour.each_backlog(samples, lambda each: each.dead_letters),
        contexts_per_minute=[None if each is None else float(each.total) for each in minutes],
        fresh_percent=[None if each is None else each.fresh_percent for each in minutes],
        assembly_p99_ms=[None if each is None else each.p99_ms for each in minutes],
    )
