"""Other windows, and another selection, of a family whose contributions are stored."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypedDict

import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.settings.schema import Settings
from headwater.testing import ManualClock

pytestmark = pytest.mark.both_environments


class Payment(TypedDict):
    amount: int
    method: str


def opened(settings: Settings, clock: ManualClock, **options: Any) -> FeatureStore:
    """Return a store whose features file has these options of ``paid``."""
    store = FeatureStore(settings=settings, clock=clock)

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="payment", aggregate="sum", value="amount", **options)
    def paid(user_id: str, event: ServiceEvent) -> Payment:
        payment: Payment = event.payload  # type: ignore[assignment]
        return payment

    return store


async def test_a_contribution_that_was_not_selected_counts_when_another_selection_is_declared(
    settings: Settings, clock: ManualClock
) -> None:
    async with opened(settings, clock, window="1h", where={"method": "card"}) as store:
        await store.publish("payment", "ada", {"amount": 5, "method": "cash"})
        await store.drain()
        assert await store.get_feature("paid_sum_1h", "ada") == 0
    async with opened(settings, clock, window="1h") as store:
        assert await store.get_feature("paid_sum_1h", "ada") == 5


async def test_a_contribution_that_was_too_old_counts_when_a_longer_window_is_declared(
    settings: Settings, clock: ManualClock
) -> None:
    async with opened(settings, clock, window="1h") as store:
        late = clock.now() - timedelta(hours=5)
        await store.publish("payment", "ada", {"amount": 5, "method": "card"}, timestamp=late)
        await store.drain()
        assert await store.get_feature("paid_sum_1h", "ada") == 0
    async with opened(settings, clock, window="2h") as store:
        assert await store.get_feature("paid_sum_2h", "ada") == 0
    async with opened(settings, clock, window="1d") as store:
        assert await store.get_feature("paid_sum_1d", "ada") == 5
