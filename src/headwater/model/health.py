"""The health of a store: probes, findings of the doctor, and the overview of the last hour."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

import msgspec

from headwater.core.short_repr import short_repr


class Alive(msgspec.Struct, frozen=True):
    """The process is running."""

    status: Literal["ok"] = "ok"


class Readiness(msgspec.Struct, frozen=True):
    """The health of each part of the store; ``degraded`` if only optional parts have failed."""

    status: Literal["ready", "degraded", "not ready"]
    parts: list[Health]


class Health(msgspec.Struct, frozen=True):
    """Whether a part of the environment works, and the problem and its remedy if it does not.

    While a part that is not needed is down, events are still accepted and values served.
    """

    name: str
    ok: bool
    detail: str = ""
    needed: bool = True

    __repr__ = short_repr("name", "ok", "detail")


Severity = Literal["ok", "unknown", "warning", "error"]
"""``unknown`` if something could not be looked at; ``warning`` if it works, but not for long or not
safely; ``error`` if it does not work."""


class Concern(msgspec.Struct, frozen=True, kw_only=True):
    """A problem in a few words: ``subject`` and ``summary`` make a sentence.

    ``page`` and ``params`` name the view of the web UI that shows it.
    """

    subject: str
    summary: str
    detail: str = ""
    page: str = "doctor"
    params: dict[str, str] = {}
    since: datetime | None = None


class Finding(msgspec.Struct, frozen=True):
    """The result of one check: its place, the finding, and the remedy.

    ``concern`` is set for a problem of the running store.
    """

    area: str
    check: str
    severity: Severity
    looked_at: str
    found: str
    remedy: str = ""
    concern: Concern | None = None


class Findings:
    """Collects the findings of one area."""

    def __init__(self, area: str, looked_at: str) -> None:
        self.area = area
        self._looked_at = looked_at
        self.all: list[Finding] = []

    def ok(self, check: str, found: str, looked_at: str = "") -> None:
        """Add that a check found no problem."""
        self.concern("ok", check, found, "", None, looked_at)

    def unknown(self, check: str, found: str, remedy: str = "", looked_at: str = "") -> None:
        """Add that a check could not find out."""
        self.concern("unknown", check, found, remedy, None, looked_at)

    def warning(self, check: str, found: str, remedy: str, looked_at: str = "") -> None:
        """Add something that works, but not for long or not safely."""
        self.concern("warning", check, found, remedy, None, looked_at)

    def error(self, check: str, found: str, remedy: str, looked_at: str = "") -> None:
        """Add something that does not work."""
        self.concern("error", check, found, remedy, None, looked_at)

    def concern(
        self,
        severity: Severity,
        check: str,
        found: str,
        remedy: str,
        concern: Concern | None,
        looked_at: str = "",
    ) -> None:
        """Add a finding; a problem of the running store is a concern."""
        place = looked_at or self._looked_at
        self.all.append(Finding(self.area, check, severity, place, found, remedy, concern))


CLOCK_TOLERANCE_SECONDS = 1.0


def add_clock_skew(findings: Findings, seconds: float, round_trip: float) -> None:
    """Add how far the clock of a server is from the one of this machine.

    ``seconds`` was measured in the middle of a round trip, and is as exact as half of that.
    """
    shown = f"{abs(seconds):.2f} s {'ahead of' if seconds > 0 else 'behind'} this machine's clock"
    if abs(seconds) - round_trip / 2 <= CLOCK_TOLERANCE_SECONDS:
        findings.ok("clock", shown)
        return
    findings.warning(
        "clock",
        f"{shown}, so ages and the order of times are wrong by as much",
        "synchronise both clocks, for example with chrony or systemd-timesyncd",
    )


def add_encryption(findings: Findings, exposure: str | None, remedy: str) -> None:
    """Add how others could read or answer what is sent to a server, if it is on another machine."""
    if exposure:
        findings.warning("encryption", f"the connection is {exposure}", remedy)
    elif exposure is not None:
        findings.ok("encryption", "encrypted, and the server's certificate is checked")


class Examination(msgspec.Struct, frozen=True):
    """The findings of all checks; ``status`` is the worst of them."""

    status: Severity
    findings: list[Finding]


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
    """A part of the store: its health, and its facts."""

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


class ObjectiveState(msgspec.Struct, frozen=True, kw_only=True):
    """An objective of a feature or a context, and how fast it uses its error budget.

    A burn rate of 1 uses exactly what the target leaves.
    """

    kind: Literal["feature", "context"]
    name: str
    objective: Literal["freshness", "latency"]
    target: float
    total: int
    """Results of the last hour, in the processes of this server and in other workers."""
    bad: int
    burn_rate: float | None
    """Of the last hour; null if there was no result."""
    burn_rate_5m: float | None
    """Of the last five minutes."""


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
    objectives: Sequence[ObjectiveState]
    """Those of the settings that the server counts, the fastest burning first."""
