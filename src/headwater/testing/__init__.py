"""Tools for testing applications: a store in a temporary folder and a manual clock.

async def test_spending_adds_up() -> None:
    async with temporary(features.store) as store:
        await store.publish("purchase", "u1", {"amount": 30.0})
        await store.drain()
        assert await store.get_feature("total_spend", "u1") == 30.0
"""

from headwater.testing.clock import ManualClock
from headwater.testing.temporary import temporary

__all__ = ["ManualClock", "temporary"]
