"""Judging a soak: what was measured, and which promises it kept."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from soak.load import Tally
from soak.sampling import Sample

CLIENT_BOUND = 0.9
"""Above this share of one core the load generator, not the server, sets the latencies."""
TOLERATED_SHARE = 0.025
TOLERATED_BYTES = 4 << 20
TOLERATED_DESCRIPTORS = 8
TOLERATED_WAL = 64 << 20


class Findings(NamedTuple):
    """The result of a soak."""

    capacity: float
    """Requests a second, the handling of their events included."""
    load: Tally
    samples: Sequence[Sample]
    waiting_events: int
    """Events that were not handled some seconds after the last request."""


class Check(NamedTuple):
    """A promise: what was measured, what is allowed, and whether it was kept."""

    subject: str
    measured: str
    allowed: str
    is_kept: bool


class Memory(NamedTuple):
    """The largest memory in the last quarter of a soak, and how much that is more, in bytes."""

    level: float
    growth: float
    """Since the quarter before. Maxima are compared, because memory that garbage collections and
    checkpoints give back goes up and down, and a line through it may point anywhere."""

    @property
    def tolerated(self) -> float:
        return max(TOLERATED_BYTES, TOLERATED_SHARE * self.level)


def checks(found: Findings) -> list[Check]:
    """Return all promises, in the order of the report."""
    return [
        _no_errors(found.load),
        _rate(found),
        _generator(found.load),
        _memory(found),
        _descriptors(found.samples),
        _wal(found.samples),
        _events(found),
    ]


def memory_of(samples: Sequence[Sample]) -> Memory:
    """Return how the memory changed in the second half, when the caches are full."""
    sizes = [each.anonymous for each in _second_half(samples)]
    third, last = sizes[: len(sizes) // 2], sizes[len(sizes) // 2 :]
    level = max(last, default=0)
    return Memory(level, level - max(third, default=level))


def _no_errors(load: Tally) -> Check:
    reasons = ", ".join(
        f"{number} x {kind}: {reason}" for (kind, reason), number in load.errors.most_common(3)
    )
    return Check("errors", reasons or "0", "0", not load.errors)


def _rate(found: Findings) -> Check:
    answered = found.load.answered / found.load.seconds
    share = answered / found.load.rate if found.load.rate else 0.0
    return Check("requests answered", f"{share:.1%} of those due", "≥ 98 %", share >= 0.98)


def _generator(load: Tally) -> Check:
    share = load.cpu / load.seconds
    return Check(
        "load generator", f"{share:.0%} of a core", f"≤ {CLIENT_BOUND:.0%}", share <= CLIENT_BOUND
    )


def _memory(found: Findings) -> Check:
    memory = memory_of(found.samples)
    requests = found.load.answered / 4
    each = memory.growth / requests if requests else 0.0
    return Check(
        "memory, last quarter",
        f"{megabytes(memory.growth, '+')} at {megabytes(memory.level)} ({each:+,.0f} B a request)",
        f"≤ {megabytes(memory.tolerated, '+')}",
        memory.growth <= memory.tolerated,
    )


def _descriptors(samples: Sequence[Sample]) -> Check:
    first, second = (
        median(each.descriptors for each in half) if half else 0
        for half in (_first_half(samples), _second_half(samples))
    )
    return Check(
        "descriptors, 2nd half",
        f"{second - first:+.0f} at {second:.0f}",
        f"≤ +{TOLERATED_DESCRIPTORS}",
        second - first <= TOLERATED_DESCRIPTORS,
    )


def _wal(samples: Sequence[Sample]) -> Check:
    largest = max((each.wal for each in samples), default=0)
    allowed = f"≤ {megabytes(TOLERATED_WAL)}"
    return Check("write-ahead log", megabytes(largest), allowed, largest <= TOLERATED_WAL)


def _events(found: Findings) -> Check:
    waiting = found.waiting_events
    return Check("events not handled", f"{waiting:,} at the end", "0", waiting == 0)


def _first_half(samples: Sequence[Sample]) -> Sequence[Sample]:
    return samples[: len(samples) // 2]


def _second_half(samples: Sequence[Sample]) -> Sequence[Sample]:
    return samples[len(samples) // 2 :]


def megabytes(size: float, sign: str = "") -> str:
    return f"{size / (1 << 20):{sign}.1f} MB"
