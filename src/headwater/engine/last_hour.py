"""The load of the last hour: a sample every ten seconds, shared by the processes of a store."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from itertools import pairwise
from typing import NamedTuple, Protocol

import msgspec

from headwater.core.clock import Clock, from_micros
from headwater.core.logging import Outage
from headwater.declarations.runtime import HasRuntime, runtime_of
from headwater.engine.engine import Engine
from headwater.engine.worker.worker import Opens
from headwater.model.admin import ConsumerLag
from headwater.model.contexts import RecordSummary
from headwater.ports import Cached, RecordQuery

STEP = 10
"""Seconds between two samples."""
SAMPLES = 360
OTHER = "(other)"
"""The name under which contexts are counted if there are too many names."""

_BLOCK = 60
_PER_MINUTE = 60 // STEP
_KEPT = timedelta(seconds=STEP * SAMPLES + 2 * _BLOCK)
# Records are stored a moment after the time that they are about, of a busy server many seconds.
_SETTLING_SECONDS = 1
_LATE_SECONDS = 2 * STEP
_PAGE = 1_000
_MOST_RECORDS = 10_000
_MOST_NAMES = 50
_NEWEST_LAST = range(SAMPLES - 1, -1, -1)
_GROWTH = math.log(1.1)
_MICROS = 1_000_000


class Backlog(msgspec.Struct, frozen=True, array_like=True):
    """How far the consumer group was: events committed and waiting in each partition."""

    committed: list[int]
    waiting: list[int]
    oldest_seconds: float
    dead_letters: int


class ContextCounts(msgspec.Struct, frozen=True, array_like=True):
    """The recorded contexts of one name: all, the degraded ones, and their durations."""

    total: int = 0
    degraded: int = 0
    durations: dict[int, int] = {}
    """How many assemblies took so long, by the logarithm of their duration."""

    def __add__(self, other: ContextCounts) -> ContextCounts:
        durations = Counter(self.durations)
        durations.update(other.durations)
        return ContextCounts(self.total + other.total, self.degraded + other.degraded, durations)

    @property
    def fresh_percent(self) -> float | None:
        """The share of contexts that were not degraded; None if there are none."""
        return round(100 * (1 - self.degraded / self.total), 2) if self.total else None

    @property
    def p99_ms(self) -> float | None:
        """The duration that 99 % of the assemblies did not exceed, to within a tenth."""
        left = math.ceil(0.99 * sum(self.durations.values()))
        for bucket, count in sorted(self.durations.items()):
            left -= count
            if left <= 0:
                return round(math.exp((bucket + 1) * _GROWTH) / 1_000, 3)
        return None


class HourSample(msgspec.Struct, frozen=True, array_like=True):
    """The state at a time, and the contexts of the ten seconds before it.

    A sample of a time in which no server ran has no backlog: only records tell about it.
    """

    at: int
    contexts: dict[str, ContextCounts]
    backlog: Backlog | None = None


Samples = Sequence[HourSample | None]


class Hour(NamedTuple):
    """The samples of an hour, oldest first, None where one is missing; the time of the last."""

    end: int
    samples: Samples


class OpensAtTimes(Opens, Protocol):
    """The part of a store's runtime that sampling needs."""

    clock: Clock


_decode = msgspec.json.Decoder(list[HourSample]).decode


class LastHour:
    """The samples of the last hour.

    Each is measured by one of the processes that serve the store, the first one whose turn it is,
    and found by the others in the store: so all show the same numbers, also after a restart.
    """

    def __init__(self, store: HasRuntime[OpensAtTimes]) -> None:
        self._runtime = runtime_of(store)
        self._samples: dict[int, HourSample] = {}
        self._outage = Outage("last hour")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Take samples as long as the context is open."""
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        while True:
            with self._outage.reporting(
                "warning", "sampling the last hour failed; retrying", "sample"
            ):
                await self.update()
            await asyncio.sleep(STEP - (time.time() - _SETTLING_SECONDS) % STEP)

    async def update(self) -> None:
        """Add the newest sample: the one that is stored, or else one that is measured now."""
        engine = await self._runtime.open()
        at = _due(engine.clock)
        first = at - STEP * (SAMPLES - 1)
        await self._load(engine, max(first, self._newest(first) - _LATE_SECONDS), at)
        if self._newest(first) < at:
            await self._measure(engine, first, at)
        for old in [sampled_at for sampled_at in self._samples if sampled_at < first]:
            del self._samples[old]

    def _newest(self, first: int) -> int:
        """Return the time of the newest measured sample, or the time before the first."""
        measured = (at for at, sample in self._samples.items() if sample.backlog)
        return max(first - STEP, max(measured, default=0))

    async def _load(self, engine: Engine, first: int, last: int) -> None:
        """Read the stored samples of a range of times."""
        keys = [_key(engine, block) for block in _blocks(first, last)]
        for stored in await asyncio.gather(*map(engine.backends.notes.get, keys)):
            for sample in _decode(stored.value) if stored else ():
                if first <= sample.at <= last:
                    self._samples[sample.at] = sample

    async def _measure(self, engine: Engine, first: int, at: int) -> None:
        """Measure the sample that is due, and count the contexts of all times since the last one.

        The times shortly before are counted again, for a record that was stored late.
        """
        start = max(first, self._newest(first) + STEP - _LATE_SECONDS)
        lags = await engine.backends.bus.lag()
        backlog = await _backlog(engine, lags)
        await engine.objectives.count_waiting(lags[:-1], engine.backends.notes)
        counted = await self._contexts(engine, start - STEP, at)
        for moment, contexts in counted.items():
            sample = self._samples.get(moment)
            if sample or contexts:
                self._samples[moment] = HourSample(
                    moment, contexts, sample.backlog if sample else None
                )
        self._samples[at] = HourSample(at, counted.get(at, {}), backlog)
        await asyncio.gather(*(self._store(engine, block) for block in _blocks(start, at)))

    async def _store(self, engine: Engine, block: int) -> None:
        """Store the samples of a minute for the other processes."""
        minute = [sample for at, sample in self._samples.items() if at // _BLOCK == block]
        if minute:
            value = Cached(msgspec.json.encode(minute), engine.clock.micros())
            await engine.backends.notes.put(_key(engine, block), value, _KEPT)

    async def _contexts(
        self, engine: Engine, start: int, end: int
    ) -> dict[int, dict[str, ContextCounts]]:
        """Return the contexts recorded between two times, by the end of their ten seconds."""
        summaries: list[RecordSummary] = []
        before = None
        while len(summaries) < _MOST_RECORDS:
            page = await engine.backends.records.records(
                RecordQuery(
                    start=from_micros(start * _MICROS),
                    end=from_micros(end * _MICROS),
                    before=before,
                    limit=_PAGE,
                )
            )
            summaries += page
            if len(page) < _PAGE:
                break
            before = page[-1].context_id
        else:
            # The times before the last record that was read are not known completely. The newest is
            # counted in any case: many contexts are closer to all of them than none.
            reached = math.ceil(summaries[-1].created_at.timestamp() / STEP) * STEP
            start = min(reached, end - STEP)
        return _counted(summaries, range(start + STEP, end + STEP, STEP))

    def samples(self) -> Hour:
        """Return the samples of the last hour."""
        due, newest = _due(self._runtime.clock), max(self._samples, default=0)
        # The sample that is due may be in the making.
        end = newest if newest >= due - STEP else due
        return Hour(end, [self._samples.get(end - STEP * back) for back in _NEWEST_LAST])


def _due(clock: Clock) -> int:
    """Return the time of the newest sample that can be taken."""
    now = clock.micros() // _MICROS - _SETTLING_SECONDS
    return now - now % STEP


def _blocks(first: int, last: int) -> range:
    """Return the minutes, in which samples are stored, of a range of times."""
    return range(first // _BLOCK, last // _BLOCK + 1)


async def _backlog(engine: Engine, lags: Sequence[ConsumerLag]) -> Backlog:
    now, letters = engine.clock.now(), await engine.backends.dead_letters.count()
    oldest = min((lag.oldest_at for lag in lags if lag.oldest_at), default=now)
    return Backlog(
        [lag.committed for lag in lags],
        [lag.waiting for lag in lags],
        max(0.0, round((now - oldest).total_seconds(), 3)),
        letters,
    )


def _key(engine: Engine, block: int) -> str:
    return f"last-hour:{engine.settings.worker.consumer_group}:{block}"


def _counted(
    records: Iterable[RecordSummary], times: Iterable[int]
) -> dict[int, dict[str, ContextCounts]]:
    """Count records by time and name."""
    records_of: dict[int, dict[str, list[RecordSummary]]] = {at: {} for at in times}
    for record in records:
        names = records_of.get(int(record.created_at.timestamp() // STEP + 1) * STEP)
        if names is not None:
            is_named = record.name in names or len(names) < _MOST_NAMES
            names.setdefault(record.name if is_named else OTHER, []).append(record)
    return {
        at: {name: _counts(some) for name, some in names.items()}
        for at, names in records_of.items()
    }


def _counts(records: Sequence[RecordSummary]) -> ContextCounts:
    degraded = sum(record.freshness_status != "guaranteed" for record in records)
    buckets = (int(math.log(max(1, record.assembly_us)) / _GROWTH) for record in records)
    return ContextCounts(len(records), degraded, Counter(buckets))


def summed(counts: Iterable[ContextCounts]) -> ContextCounts:
    """Return the sum of counts."""
    return sum(counts, ContextCounts())


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
    """Return how many events were processed.

    The last partition is left out: it has the ticks of queries, which no caller has published.
    """
    return sum(backlog.committed[:-1])


def accepted(backlog: Backlog) -> int:
    """Return how many events were processed or wait."""
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
