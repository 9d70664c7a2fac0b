"""For tests of what is built on Headwater: a store in a temporary folder and a hand-wound clock.

    async def test_spending_adds_up() -> None:
        async with temporary(features.store) as store:
            await store.publish("purchase", "u1", {"amount": 30.0})
            await store.drain()
            assert await store.get_feature("total_spend", "u1") == 30.0

Authors of backends find the suites that every backend must pass, and that need pytest, in
``headwater.testing.conformance``.
"""

from headwater.testing.clock import ManualClock
from headwater.testing.temporary import temporary

__all__ = ["ManualClock", "temporary"]
