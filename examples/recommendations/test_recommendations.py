"""Queries run when they are due, and views count at once: `pytest` in this folder."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from recommendations import recommended, store

from headwater.testing import ManualClock, temporary

NOON = datetime(2026, 4, 1, 12, tzinfo=UTC)


@pytest.fixture
async def clock() -> AsyncIterator[ManualClock]:
    """Yield the clock of a store in which each query ran once."""
    clock = ManualClock(NOON)
    async with temporary(store, clock=clock):
        await store.drain()
        yield clock


async def runs_of(name: str, entity_id: str) -> datetime:
    (row,) = await store.get_feature_values([name], [entity_id])
    value = row[name]
    assert value.as_of is not None
    return value.as_of


async def test_what_goes_with_a_purchase_is_recommended(clock: ManualClock) -> None:
    assert await recommended.get("ada") == ["lamp", "stove", "tent"]


async def test_a_view_counts_at_once_and_for_an_hour(clock: ManualClock) -> None:
    await store.publish("viewed", "ada", {"product": "kayak"})
    await store.drain()
    assert await recommended.get("ada") == ["lamp", "vest", "stove"]
    clock.advance("2h")
    assert await recommended.get("ada") == ["lamp", "stove", "tent"]


async def test_a_new_customer_is_shown_what_sells_most(clock: ManualClock) -> None:
    assert await recommended.get("nobody") == ["lamp", "mat", "pack"]


async def test_each_query_runs_when_it_is_due(clock: ManualClock) -> None:
    clock.advance("13h")  # 01:00 in London, 03:00 in Berlin
    await store.drain()
    assert await runs_of("bought_with", "lamp") == NOON
    assert await runs_of("bought", "ada") > NOON
    clock.advance("1h")
    await store.drain()
    assert await runs_of("bought_with", "lamp") == clock.now()
    assert await runs_of("bestsellers", "shop") == clock.now()


async def test_past_recommendations_are_those_of_their_moment(clock: ManualClock) -> None:
    clock.advance("10m")
    await store.publish("viewed", "ada", {"product": "kayak"})
    await store.drain()
    rows = [{"customer_id": "ada", "timestamp": at} for at in (NOON, clock.now())]
    before, after = await store.get_historical_features(rows, ["recommended"])
    assert before["recommended"] == ["lamp", "stove", "tent"]
    assert after["recommended"] == ["lamp", "vest", "stove"]
