"""The windows that contexts have recorded are those of the contributions in history."""

from __future__ import annotations

from datetime import timedelta

import pytest

from headwater import ContextItem, FeatureStore, context
from headwater.testing import ManualClock
from tests.features.test_reconcile import lose_history
from tests.features.window_shop import DAY, HOUR, buy, declare

pytestmark = pytest.mark.both_environments


@pytest.fixture(autouse=True)
def shop(store: FeatureStore) -> None:
    declare(store)

    @context(store)
    async def brief(user_id: str) -> ContextItem:
        return ContextItem.template("{spend_sum_1h} {spend_last3_7d|none} {bought_sum_7d}")


async def test_recorded_windows_are_compared_with_contributions(
    store: FeatureStore, clock: ManualClock
) -> None:
    for amount, pause in ((1.0, HOUR / 2), (2.0, 3 * HOUR), (3.0, 8 * DAY), (4.0, HOUR / 9)):
        await buy(store, clock, amount, timedelta(minutes=5))
        await store.assemble("brief", {"user_id": "u1"})
        clock.advance(pause)
        await store.assemble("brief", {"user_id": "u1"})
    await store.assemble("brief", {"user_id": "nobody"})
    report = (await store.admin.audit()).served
    assert (report.records, report.values, report.equal, report.different) == (9, 27, 27, 0)
    assert not report.not_compared
    await lose_history(store, "feature = 'spend' AND CAST(value AS TEXT) = '4.0'")
    served = (await store.admin.audit()).served
    assert {each.feature for each in served.differences} == {"spend_sum_1h", "spend_last3_7d"}
    assert served.different == 4
