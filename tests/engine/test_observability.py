"""Logs and metrics: one log record per event, and counters of outcomes."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from headwater import FeatureStore, ServiceEvent, Worker, feature
from tests.engine.support import metric, records


async def test_each_processed_event_is_one_log_record_with_these_fields(
    store: FeatureStore, user: type, capsys: pytest.CaptureFixture[str]
) -> None:
    @feature(entity=user, trigger="buy")
    async def first(user_id: str, event: ServiceEvent) -> int:
        return 1

    @feature(entity=user, trigger="buy", max_retries=0)
    async def broken(user_id: str, event: ServiceEvent) -> int:
        raise ValueError("no")

    @feature(entity=user, trigger="buy")
    async def last(user_id: str, event: ServiceEvent) -> int:
        return 1

    await store.publish("buy", "u1", event_id="e1")
    await store.publish("unheard", "u2", event_id="e2")
    await store.drain()
    said = capsys.readouterr().err
    (one,), (other,) = records(said, "event failed"), records(said, "event processed")
    assert (
        set(one)
        >= set(other)
        >= {
            "timestamp",
            "level",
            "event_type",
            "entity_id",
            "event_id",
            "duration_ms",
            "features_updated",
        }
    )
    assert (one["level"], one["event_type"], one["entity_id"]) == ("info", "buy", "u1")
    assert (one["event_id"], other["event_id"]) == ("e1", "e2")
    assert one["features_updated"] == ["first", "last"]
    assert one["features_failed"] == ["broken"]
    assert one["duration_ms"] >= 0
    assert (other["event_type"], other["features_updated"]) == ("unheard", [])


async def test_the_record_of_an_event_lists_the_features_that_handlers_set(
    store: FeatureStore, user: type, capsys: pytest.CaptureFixture[str]
) -> None:
    @feature(entity=user, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> int:
        for other in (user_id, "u2"):
            await store.set_feature("visits", other, 1)
        return 1

    @feature(entity=user, trigger="visit")
    async def visits(user_id: str, event: ServiceEvent) -> int:
        return 1

    @feature(entity=user, trigger="buy")
    async def notes(user_id: str, event: ServiceEvent) -> None:
        await store.set_feature("visits", user_id, 2)

    await store.publish("buy", "u1")
    await store.drain()
    (record,) = records(capsys.readouterr().err, "event processed")
    assert record["features_updated"] == ["visits", "total"]


async def test_a_dead_letter_is_an_error_in_the_log(
    store: FeatureStore, user: type, capsys: pytest.CaptureFixture[str]
) -> None:
    @feature(entity=user, trigger="buy", max_retries=1)
    async def broken(user_id: str, event: ServiceEvent) -> int:
        raise ValueError("no")

    await store.publish("buy", "u1", event_id="e1")
    await store.drain()
    (record,) = records(capsys.readouterr().err, "dead letter")
    assert record["level"] == "error"
    assert (record["feature"], record["event_id"], record["attempts"]) == ("broken", "e1", 2)
    assert record["error"] == "ValueError: no"


async def test_event_metrics_count_processed_and_failed_events_and_their_time(
    store: FeatureStore, user: type
) -> None:
    @feature(entity=user, trigger=["measured", "measured_badly"], max_retries=2)
    async def total(user_id: str, event: ServiceEvent) -> int:
        if event.event_type == "measured_badly":
            raise ValueError("no")
        return 1

    def counts() -> list[float]:
        return [
            metric("headwater_events_processed_total", event_type="measured"),
            metric("headwater_events_processed_total", event_type="measured_badly"),
            metric("headwater_events_failed_total", event_type="measured"),
            metric("headwater_events_failed_total", event_type="measured_badly"),
            metric("headwater_event_processing_seconds_count"),
            metric("headwater_event_retries_total"),
            metric("headwater_dead_letters_total", feature="total"),
        ]

    before = counts()
    for _ in range(3):
        await store.publish("measured", "u1")
    await store.publish("measured_badly", "u1")
    await store.drain()
    grown = [now - then for now, then in zip(counts(), before, strict=True)]
    assert grown == [3, 1, 0, 1, 4, 2, 1]


async def test_event_types_that_nothing_triggers_on_share_one_label(
    store: FeatureStore, user: type
) -> None:
    before = metric("headwater_events_processed_total", event_type="(untriggered)")
    for number in range(3):
        await store.publish(f"made-up-{number}", "u1")
    await store.drain()
    after = metric("headwater_events_processed_total", event_type="(untriggered)")
    assert after == before + 3
    assert metric("headwater_events_processed_total", event_type="made-up-1") == 0


async def test_an_event_of_a_feature_for_its_effect_alone_is_counted_under_its_own_type(
    store: FeatureStore, user: type
) -> None:
    @feature(entity=user, trigger="effect_only")
    async def relay(user_id: str, event: ServiceEvent) -> None:
        return None

    before = metric("headwater_events_processed_total", event_type="effect_only")
    await store.publish("effect_only", "u1")
    await store.drain()
    assert metric("headwater_events_processed_total", event_type="effect_only") == before + 1


async def test_an_event_that_was_run_again_is_counted_once(
    store: FeatureStore, user: type, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = 0

    @feature(entity=user, trigger="disturbed")
    async def total(user_id: str, event: ServiceEvent) -> int:
        nonlocal runs
        runs += 1
        if runs == 1:
            elsewhere = contextvars.Context()
            await asyncio.create_task(store.set_feature("total", user_id, 0), context=elsewhere)
        return runs

    before = metric("headwater_events_processed_total", event_type="disturbed")
    await store.publish("disturbed", "u1")
    await store.drain()
    assert metric("headwater_events_processed_total", event_type="disturbed") == before + 1
    assert len(records(capsys.readouterr().err, "event processed")) == 1
    assert await store.get_feature("total", "u1") == 2


@asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[None]:
    task = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        await task
