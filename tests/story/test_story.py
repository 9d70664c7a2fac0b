"""The tutorial. Read ``shop.py`` first, then these tests from top to bottom."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from headwater import FeatureStore, ServiceEvent, Worker
from headwater.testing import ManualClock, temporary
from tests.engine.support import until
from tests.story import shop


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(clock: ManualClock) -> AsyncIterator[FeatureStore]:
    """The shop's own store, in a temporary folder for as long as the test runs."""
    async with temporary(shop.store, clock) as store:
        yield store


async def test_1_a_declared_feature_is_a_plain_function() -> None:
    assert shop.name("ada") == "Ada"


async def test_2_events_are_published_and_change_features(store: FeatureStore) -> None:
    await store.publish("purchase", "ada", {"amount": 30.0})
    await store.publish("purchase", "ada", {"amount": 12.5})
    await store.publish("refund", "ada", {"amount": 2.5})
    await store.drain()
    assert await store.get_feature("total_spend", "ada") == 40.0


async def test_3_a_worker_does_the_same_for_as_long_as_it_runs(store: FeatureStore) -> None:
    worker = Worker(store)
    running = asyncio.create_task(worker.run())
    await store.bus.publish(ServiceEvent("purchase", "ada", {"amount": 30.0}))

    async def spent() -> bool:
        return bool(await store.get_feature("total_spend", "ada") == 30.0)

    await until(spent)
    worker.stop()
    await running


async def test_4_many_features_of_many_customers_are_read_at_once(store: FeatureStore) -> None:
    await store.publish("purchase", "ada", {"amount": 30.0})
    await store.drain()
    assert await store.get_features(["blurb", "total_spend"], ["ada", "bob"]) == {
        "ada": {"blurb": "Ada has spent 30.0 €", "total_spend": 30.0},
        "bob": {"blurb": None, "total_spend": None},
    }


async def test_5_a_value_knows_how_old_it_is(store: FeatureStore, clock: ManualClock) -> None:
    await store.publish("purchase", "ada", {"amount": 30.0})
    await store.drain()
    clock.advance("5m")
    (row,) = await store.get_feature_values(["total_spend"], ["ada"])
    assert row["total_spend"].age_ms(clock.now()) == 300_000
    assert row["total_spend"].source == "online"


async def test_6_a_failing_handler_is_retried_then_becomes_a_dead_letter(
    store: FeatureStore,
) -> None:
    await store.publish("purchase", "ada", {"amount": 100.0, "currency": "SEK"})
    await store.publish("purchase", "ada", {"amount": 5.0})
    await store.drain()
    assert await store.get_feature("total_spend", "ada") == 5.0
    (letter,) = await store.dead_letters.list()
    assert (letter.feature, letter.error) == ("total_spend", "KeyError: 'SEK'")
    assert letter.attempts == 4


async def test_7_a_dead_letter_is_run_again_when_its_cause_is_mended(
    store: FeatureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.publish("purchase", "ada", {"amount": 100.0, "currency": "SEK"})
    await store.drain()
    (letter,) = await store.dead_letters.list()
    monkeypatch.setitem(shop.EUROS, "SEK", 0.1)
    await store.dead_letters.redrive(letter.id)
    await store.drain()
    assert await store.get_feature("total_spend", "ada") == 10.0
    assert await store.dead_letters.list() == []


async def test_8_a_schedule_recomputes_for_everyone(
    store: FeatureStore, clock: ManualClock
) -> None:
    await store.publish("purchase", "ada", {"amount": 99.0})
    await store.publish("purchase", "bob", {"amount": 100.0})
    await store.drain()
    clock.advance("1h")
    await store.drain()
    assert await store.get_features(["tier"], ["ada", "bob"]) == {
        "ada": {"tier": "silver"},
        "bob": {"tier": "gold"},
    }


async def test_9_every_value_there_ever_was_is_a_table(
    store: FeatureStore, clock: ManualClock
) -> None:
    await store.publish("purchase", "ada", {"amount": 80.0})
    await store.publish("refund", "ada", {"amount": 50.0})
    await store.drain()
    clock.advance("1h")
    await store.drain()
    assert await store.get_features(["total_spend", "most_ever"], ["ada"]) == {
        "ada": {"total_spend": 30.0, "most_ever": 80.0}
    }
