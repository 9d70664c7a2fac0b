"""Rates, shares and percentiles of the samples of the last hour. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from headwater.engine.last_hour import STEP, Backlog, ContextCounts, Sample, summed

Samples = Sequence[Sample | None]
_PER_MINUTE = 60 // STEP


def each_backlog(samples: Samples, number: Callable[[Backlog], float]) -> list[float | None]:
    """Return a number of each sample's backlog."""
    return [number(sample.backlog) if sample and sample.backlog else None for sample in samples]


def each_rate(samples: Samples, count: Callable[[Backlog], int]) -> list[float | None]:
    """Return the growth of a count per second, from each sample to the next."""
    backlogs = [sample.backlog if sample else None for sample in samples]
    return [None, *(_rate(before, after, count) for before, after in pairwise(backlogs))]


def _rate(
    before: Backlog | None, after: Backlog | None, count: Callable[[Backlog], int]
) -> float | None:
    if before is None or after is None:
        return None
    # Another number of partitions, or a group that began again: the counts are not comparable.
    if len(before.committed) != len(after.committed) or committed(after) < committed(before):
        return None
    # Both are read one partition after the other, so the sum of committed and waiting may go back.
    return max(0.0, round((count(after) - count(before)) / STEP, 2))


def committed(backlog: Backlog) -> int:
    """Return the number of events that were processed.

    The last partition is left out: it has the ticks of queries, which no caller has published.
    """
    return sum(backlog.committed[:-1])


def accepted(backlog: Backlog) -> int:
    """Return the number of events that were processed or wait."""
    return committed(backlog) + sum(backlog.waiting[:-1])


def each_minute(samples: Samples) -> list[ContextCounts | None]:
    """Return the contexts of the minute before each sample; None if no sample is about it."""
    counts = [summed(sample.contexts.values()) if sample else None for sample in samples]
    minutes = (
        [count for count in counts[max(0, end - _PER_MINUTE) : end] if count is not None]
        for end in range(1, len(counts) + 1)
    )
    return [summed(minute) if minute else None for minute in minutes]


def by_context(samples: Samples) -> dict[str, ContextCounts]:
    """Return the contexts of all samples by their names."""
    counts_of: dict[str, list[ContextCounts]] = {}
    for sample in samples:
        for name, counts in sample.contexts.items() if sample else ():
            counts_of.setdefault(name, []).append(counts)
    return {name: summed(counts) for name, counts in counts_of.items()}


def partition_rates(samples: Samples) -> list[float]:
    """Return the events per second of each partition in the last step; none if unknown."""
    before, after = (sample.backlog if sample else None for sample in samples[-2:])
    if before is None or after is None or _rate(before, after, committed) is None:
        return []
    pairs = zip(before.committed, after.committed, strict=True)
    return [max(0.0, (new - old) / STEP) for old, new in pairs]
