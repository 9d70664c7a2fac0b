"""The log records of an outage."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO

import pytest

from headwater.core import logging as logs
from headwater.core.logging import Outage, log
from headwater.errors import BackendError, BackendUnavailableError

AWAY = BackendUnavailableError("no answer")


class Said:
    """The log of a test, and its clock."""

    def __init__(self) -> None:
        self.text = StringIO()
        self.now = 1_000.0

    def lines(self) -> list[str]:
        """Return the lines since the last call, without the time."""
        lines = self.text.getvalue().splitlines()
        self.text.seek(0)
        self.text.truncate()
        return [" ".join(line.split()[1:]) for line in lines]

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Iterator[Said]:
    heard = Said()
    monkeypatch.setattr(logs, "time", heard)
    log.configure("info", "console", heard.text)
    yield heard
    log.configure("info", "auto")


def test_an_outage_and_its_end_are_each_logged_once(said: Said) -> None:
    outage = Outage("events")
    for who in ("reading", "claiming", "reading", "claiming"):
        outage.report("error", f"{who} failed", AWAY, who)
    assert said.lines() == ["error reading failed error=no answer"]
    said.now += 2.5
    outage.recovered("counting")
    outage.recovered("reading")
    assert said.lines() == []
    outage.recovered("claiming")
    assert said.lines() == ["info back after an outage part=events seconds=2.5"]
    outage.recovered("claiming")
    assert said.lines() == []


def test_the_next_outage_is_logged_again(said: Said) -> None:
    outage = Outage("events")
    for _ in range(2):
        outage.report("warning", "reading failed", AWAY, "reading", partition=3)
        outage.recovered("reading")
    away = "warning reading failed error=no answer partition=3"
    assert said.lines() == [away, "info back after an outage part=events seconds=0.0"] * 2


def test_another_failure_within_an_outage_is_logged_once_per_operation(said: Said) -> None:
    outage = Outage("events")
    for error in (AWAY, BackendError("the disk is full"), AWAY, BackendError("the disk is full")):
        outage.report("error", "reading failed", error, "reading")
        outage.report("error", "claiming failed", error, "claiming")
    assert said.lines() == [
        "error reading failed error=no answer",
        "error reading failed error=the disk is full",
        "error claiming failed error=the disk is full",
    ]


def test_a_caller_that_stopped_retrying_does_not_prolong_an_outage(said: Said) -> None:
    outage = Outage("events")
    outage.report("error", "reading failed", AWAY, "partition 1")
    said.now += 61
    outage.report("error", "reading failed", AWAY, "partition 2")
    outage.recovered("partition 2")
    away = "error reading failed error=no answer"
    assert said.lines() == [away, away, "info back after an outage part=events seconds=0.0"]
