"""The dedup window with publishers whose clocks differ."""

from __future__ import annotations

from datetime import timedelta

from headwater import FeatureStore, ServiceEvent
from headwater.settings.schema import Settings
from headwater.testing import ManualClock


async def test_a_publisher_with_a_fast_clock_does_not_expire_ids_of_others(
    settings: Settings, store: FeatureStore
) -> None:
    once = ServiceEvent("buy", "u1", {}, event_id="once")
    other = ServiceEvent("buy", "u1", {}, event_id="other")
    await store.bus.publish_many([once])
    ahead = ManualClock()
    ahead.advance(timedelta(days=2))
    async with FeatureStore(settings=settings, clock=ahead) as hasty:
        await hasty.bus.publish_many([other])
        (answer,) = await store.bus.publish_many([once])
        assert answer.duplicate
        # By its own clock the window is over, for this id as for any.
        (answer,) = await hasty.bus.publish_many([once])
        assert not answer.duplicate
        (answer,) = await hasty.bus.publish_many([once])
        assert answer.duplicate
