"""How a store is and was in the last hour."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

import msgspec

Numbers = Sequence[float | None]
OverviewStatus = Literal["healthy", "attention", "failing"]


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """The last hour in equal steps, oldest first; null where the server has no sample.

    All numbers are about the whole store. Contexts are those that were recorded, in the minute
    before each point. Ticks of scheduled functions count as events, those of queries do not.
    """

    end: datetime
    """The time of the last point."""
    step_seconds: int
    accepted_per_second: Numbers
    processed_per_second: Numbers
    waiting: Numbers
    """Events that the consumer group has not committed."""
    oldest_seconds: Numbers
    """The age of the oldest waiting event; 0 if none waits."""
    dead_letters: Numbers
    contexts_per_minute: Numbers
    fresh_percent: Numbers
    """The share of contexts that were not degraded; null if there was none."""
    assembly_p99_ms: Numbers


class WorkerState(msgspec.Struct, frozen=True, kw_only=True):
    """A worker of the consumer group, or of another one."""

    id: str
    group: str
    partitions: Sequence[int]
    events_per_second: float | None
    heartbeat_seconds: float
    """The age of its last heartbeat."""


class StoreState(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the store: its health, and what is known about it."""

    name: str
    description: str
    ok: bool
    needed: bool
    """Whether the store works only with it."""
    detail: str = ""
    """The problem and its remedy."""


class ContextState(msgspec.Struct, frozen=True, kw_only=True):
    """The recorded contexts of one name in the last hour."""

    name: str
    total: int
    per_minute: float
    p99_ms: float | None
    fresh_percent: float | None
    fresh_series: Numbers
    """The share of fresh contexts in each two minutes; null if there was none."""


class OverviewFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Something to look at; ``subject`` and ``summary`` make a sentence.

    ``page`` and ``params`` name the view of the web UI that shows it.
    """

    severity: Literal["warning", "error"]
    check: str
    subject: str
    summary: str
    detail: str
    remedy: str
    page: str
    params: dict[str, str]
    since: datetime | None


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """How a store is, and what to look at first."""

    status: OverviewStatus
    since: datetime | None
    """Since when, as far as it is known."""
    title: str
    subtitle: str
    at: datetime
    findings: Sequence[OverviewFinding]
    """What needs attention, the worst first."""
    partitions: int
    unowned: int
    """Partitions without a worker."""
    waiting: int | None
    """Events that wait now; None if the store does not answer."""
    dead_letters: int | None
    """Dead letters now; None if the store does not answer."""
    workers: Sequence[WorkerState]
    stores: Sequence[StoreState]
    contexts: Sequence[ContextState]
