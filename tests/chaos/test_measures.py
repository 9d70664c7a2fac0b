"""The parts of a chaos run that measure calls and step clocks."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from chaos.calls import Calls
from chaos.clock import VARIABLE, clock_of_this_process, step
from headwater.core.clock import SystemClock
from headwater.errors import BackendUnavailableError

HOUR = timedelta(hours=1)


def test_a_call_that_outlives_twice_its_timeout_is_a_violation() -> None:
    calls = Calls()
    with calls.timed("read", timeout=3_600):
        pass
    assert calls.violations == []
    with pytest.raises(BackendUnavailableError), calls.timed("publish", timeout=1e-12):
        raise BackendUnavailableError("away")
    assert calls.refused == {"publish": 1}
    (violation,) = calls.violations
    assert violation.startswith("a call to publish took ")


def test_the_clock_of_a_worker_is_stepped_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "clock"
    step(file, 0)
    monkeypatch.setenv(VARIABLE, str(file))
    clock, system = clock_of_this_process(), SystemClock()
    before = clock.monotonic()
    for seconds in (3_600, -3_600, 0):
        step(file, seconds)
        ahead = clock.now() - system.now()
        assert abs(ahead - timedelta(seconds=seconds)) < HOUR / 60
        assert abs((clock.micros() - system.micros()) - seconds * 1_000_000) < 60_000_000
    assert clock.monotonic() - before < 60_000_000
    monkeypatch.delenv(VARIABLE)
    assert isinstance(clock_of_this_process(), SystemClock)
