"""The backlog is measured while a worker runs, and is NaN otherwise."""

from __future__ import annotations

import asyncio
import math

import pytest
from prometheus_client import generate_latest

from headwater import FeatureStore, ServiceEvent, Worker, feature
from headwater.core.clock import SystemClock
from headwater.core.logging import Outage
from headwater.declarations.runtime import runtime_of
from headwater.engine.worker import periodic_work as gauges
from headwater.settings.schema import Settings
from tests.engine.support import metric, records, until

pytestmark = pytest.mark.both_environments


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauges, "_MEASURE_SECONDS", 0.01)
    # On a busy machine, fifty times the length of a measurement is more than a minute.
    monkeypatch.setattr(gauges, "_PAUSE_PER_MEASUREMENT", 0)
    # An earlier test may have left a worker without an end.
    gauges._reset()  # noqa: SLF001


async def test_a_running_worker_measures_the_number_and_age_of_waiting_events(
    store: FeatureStore, user: type
) -> None:
    going_on = asyncio.Event()

    @feature(entity=user, trigger="buy", max_retries=0)
    async def slow(user_id: str, event: ServiceEvent) -> int:
        await going_on.wait()
        raise ValueError("no")

    assert math.isnan(metric("headwater_lag_events"))
    for number in range(3):
        await store.publish("buy", f"u{number}")
    worker = Worker(store)
    working = asyncio.create_task(worker.run())
    await until(lambda: metric("headwater_lag_events") == 3)
    await until(lambda: metric("headwater_owned_partitions") == 5)
    assert metric("headwater_lag_seconds") >= 0
    assert metric("headwater_dead_letters_waiting") == 0
    going_on.set()
    await until(lambda: metric("headwater_dead_letters_waiting") == 3)
    await until(lambda: metric("headwater_lag_events") == 0)
    assert metric("headwater_lag_seconds") == 0
    worker.stop()
    await working
    assert metric("headwater_owned_partitions") == 0
    for name in ("lag_events", "lag_seconds", "dead_letters_waiting"):
        assert math.isnan(metric(f"headwater_{name}"))


async def test_the_gauges_are_unknown_while_the_store_is_unavailable(
    store: FeatureStore, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = await runtime_of(store).open()
    await store.close()
    looking = asyncio.create_task(
        gauges.update_gauges(engine.backends, SystemClock(), range(3), Outage("events"))
    )
    said = ""

    def told() -> bool:
        nonlocal said
        said += capsys.readouterr().err
        return bool(records(said, "measuring the backlog failed; retrying"))

    await until(told)
    assert math.isnan(metric("headwater_lag_events"))
    assert metric("headwater_owned_partitions") == 3
    looking.cancel()


async def test_the_size_of_batches_and_the_time_of_commits_are_measured(
    store: FeatureStore, user: type
) -> None:
    before = metric("headwater_commit_seconds_count"), metric("headwater_batch_events_sum")
    for _ in range(3):
        await store.publish("buy", "u1")
    await store.drain()
    assert metric("headwater_commit_seconds_count") == before[0] + 1
    assert metric("headwater_batch_events_sum") == before[1] + 3
    assert metric("headwater_commit_seconds_sum") > 0
    assert b"headwater_batch_events_bucket" in generate_latest()
