"""Findings: the results of examining an installation."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

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
    """The result of one check: its place, what was found, and the remedy.

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
        self._add("ok", check, found, "", looked_at)

    def unknown(self, check: str, found: str, remedy: str = "", looked_at: str = "") -> None:
        """Add that a check could not find out."""
        self._add("unknown", check, found, remedy, looked_at)

    def warning(self, check: str, found: str, remedy: str, looked_at: str = "") -> None:
        """Add something that works, but not for long or not safely."""
        self._add("warning", check, found, remedy, looked_at)

    def error(self, check: str, found: str, remedy: str, looked_at: str = "") -> None:
        """Add something that does not work."""
        self._add("error", check, found, remedy, looked_at)

    def concern(
        self,
        severity: Severity,
        check: str,
        found: str,
        remedy: str,
        concern: Concern,
        looked_at: str = "",
    ) -> None:
        """Add a problem of the running store."""
        self._add(severity, check, found, remedy, looked_at, concern)

    def _add(
        self,
        severity: Severity,
        check: str,
        found: str,
        remedy: str,
        looked_at: str,
        concern: Concern | None = None,
    ) -> None:
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


class Examination(msgspec.Struct, frozen=True):
    """The findings of all checks; ``status`` is the worst of them."""

    status: Severity
    findings: list[Finding]
