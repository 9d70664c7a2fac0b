"""Event ids are remembered by the clocks of those who publish, and nobody's alone."""

from __future__ import annotations

from datetime import timedelta

from headwater import FeatureStore, ServiceEvent
from headwater.settings.schema import Settings
from headwater.testing import ManualClock


async def test_a_publisher_whose_clock_is_ahead_makes_nobody_else_forget(
    settings: Settings, store: FeatureStore
) -> None:
    once = ServiceEvent("buy", "u1", {}, event_id="once")
    other = ServiceEvent("buy", "u1", {}, event_id="other")
    await store.publish_events([once])
    ahead = ManualClock()
    ahead.advance(timedelta(days=2))
    async with FeatureStore(settings=settings, clock=ahead) as hasty:
        await hasty.publish_events([other])
        (answer,) = await store.publish_events([once])
        assert answer.duplicate
        # By its own clock the window is over, for this id as for any.
        (answer,) = await hasty.publish_events([once])
        assert not answer.duplicate
        (answer,) = await hasty.publish_events([once])
        assert answer.duplicate
