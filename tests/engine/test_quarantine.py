"""Quarantined events and the other lanes share a worker's time."""

from __future__ import annotations

import pytest

from headwater.engine.worker import lanes
from headwater.engine.worker.lanes import QuarantineScheduler


class Watch:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    watch = Watch()
    monkeypatch.setattr(lanes, "time", watch)
    return watch


def test_the_others_get_as_much_time_as_they_stood_still(watch: Watch) -> None:
    turns = QuarantineScheduler()
    turns.begin_quarantine()
    watch.now += 2
    turns.event_ended()
    assert turns.is_others_turn()
    watch.now += 1.9
    assert turns.is_others_turn()
    watch.now += 0.2
    assert not turns.is_others_turn()


def test_quick_events_run_alone_one_after_the_other(watch: Watch) -> None:
    turns = QuarantineScheduler()
    for _ in range(4):
        turns.begin_quarantine()
        watch.now += 0.1
        turns.event_ended()
        assert not turns.is_others_turn()
    turns.begin_quarantine()
    watch.now += 0.2
    turns.event_ended()
    assert turns.is_others_turn()


def test_an_event_that_waits_for_others_is_not_blamed_for_the_delay(watch: Watch) -> None:
    turns = QuarantineScheduler()
    turns.hold_others()
    watch.now += 20
    turns.begin_quarantine()
    watch.now += 0.01
    turns.event_ended()
    assert not turns.is_others_turn()
