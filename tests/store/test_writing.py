"""Values that are set from outside of their function."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.settings.schema import Settings
from headwater.testing import ManualClock

pytestmark = pytest.mark.both_environments

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def declare(store: FeatureStore) -> FeatureStore:
    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="buy")
    def tier(user_id: str, event: ServiceEvent) -> str:
        return "bought"

    return store


@pytest.mark.parametrize("as_of", [None, NOW])
async def test_a_write_counts_although_the_clock_of_its_writer_is_5_ms_behind(
    settings: Settings, as_of: datetime | None
) -> None:
    ahead = declare(FeatureStore(settings=settings, clock=ManualClock(NOW)))
    clock = ManualClock(NOW - timedelta(milliseconds=5))
    behind = declare(FeatureStore(settings=settings, clock=clock))
    async with ahead, behind:
        await ahead.set_feature("tier", "u1", "silver", as_of=as_of)
        for tier in ("gold", "platinum"):
            await behind.set_feature("tier", "u1", tier, as_of=as_of)
            assert await ahead.get_feature("tier", "u1") == tier
        report = await ahead.admin.audit()
        assert (report.values, report.differences) == (1, [])
        [row] = await behind.get_feature_values(["tier"], ["u1"])
        assert row["tier"].as_of == NOW
        assert row["tier"].written_at == NOW + timedelta(microseconds=2)


async def test_a_value_as_of_an_earlier_time_than_the_stored_one_is_history(
    settings: Settings,
) -> None:
    store = declare(FeatureStore(settings=settings, clock=ManualClock(NOW)))
    async with store:
        await store.set_feature("tier", "u1", "gold")
        await store.set_feature("tier", "u1", "silver", as_of=NOW - timedelta(days=1))
        assert await store.get_feature("tier", "u1") == "gold"
