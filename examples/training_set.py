"""A training set: the values that features had at the time of each labelled row.

Each purchase raises `total_spend`. The labels say which users came back, and when we knew it. A
row gets the total of that moment, never a later one, so a model learns from what was known.

    python examples/training_set.py                        run it in a temporary folder
    headwater history LABELS.parquet -f total_spend        the same for a file, of any size
"""

import asyncio
from datetime import UTC, datetime, timedelta

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.testing import temporary

store = FeatureStore()
MARCH = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)


@entity(store)
class User:
    user_id: str


@feature(entity=User, trigger="purchase", default=0.0)
async def total_spend(user_id: str, event: ServiceEvent) -> float:
    """Total of all purchases."""
    before: float = await store.get_feature("total_spend", user_id)
    return before + float(event.payload["amount"])


@feature(entity=User, derived=True)
async def tier(user_id: str) -> str:
    """Gold if the total is 100 or more; computed again for past moments."""
    return "gold" if await store.get_feature("total_spend", user_id) >= 100 else "silver"


LABELS = [
    {"user_id": "ada", "timestamp": MARCH + 1 * DAY, "came_back": True},
    {"user_id": "ada", "timestamp": MARCH + 9 * DAY, "came_back": False},
    {"user_id": "bob", "timestamp": MARCH + 9 * DAY, "came_back": False},
]


async def main() -> None:
    async with temporary(store):
        for day in (0, 4, 8):
            await store.publish("purchase", "ada", {"amount": 40}, timestamp=MARCH + day * DAY)
        await store.drain()
        # A data frame of pandas or Polars, a file or a query works in the same way.
        for row in await store.get_historical_features(LABELS, [total_spend, tier]):
            print(f"{row['timestamp']:%d %b}", row["user_id"], row["total_spend"], row["tier"])


if __name__ == "__main__":
    asyncio.run(main())
