"""Fraud: payments over windows of time, a training set of them, and the same numbers online.

One function says what a payment contributes; each aggregate of each window is a feature. A thief
tries a card with small payments in several shops, and then takes much. The training set has the
values of the moment of each payment, and a request at that moment got the same ones.

    python examples/windows.py                               run it in a temporary folder
    headwater history import PAYMENTS.parquet -f payments    begin with a warehouse table
"""

import asyncio
from datetime import UTC, datetime, timedelta

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.testing import ManualClock, temporary

store = FeatureStore()
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@entity(store)
class Card:
    card_id: str


@feature(entity=Card, trigger="payment", window=["1h", "30d"], aggregate=["count", "sum", "max"])
def payments(card_id: str, event: ServiceEvent) -> float:
    """Amounts of payments."""
    return float(event.payload["amount"])


@feature(entity=Card, trigger="payment", window="1h", aggregate="distinct")
def shops(card_id: str, event: ServiceEvent) -> str:
    """Shops in which a card pays."""
    return str(event.payload["shop"])


@feature(entity=Card, derived=True)
async def is_suspicious(card_id: str) -> bool:
    """Whether a card pays in several shops, and at once more than all else of the month."""
    largest = await payments["max", "1h"].get(card_id) or 0
    month = await payments["sum", "30d"].get(card_id) or 0
    return (await shops["distinct", "1h"].get(card_id) or 0) > 2 and 2 * largest > month


PAYMENTS = [
    (NOON - timedelta(days=20), "c1", 25.0, "grocer"),
    (NOON - timedelta(days=3), "c1", 30.0, "grocer"),
    (NOON - timedelta(minutes=40), "c2", 1.0, "kiosk"),
    (NOON - timedelta(minutes=35), "c2", 1.0, "petrol"),
    (NOON - timedelta(minutes=5), "c2", 900.0, "jeweller"),
    (NOON, "c1", 20.0, "grocer"),
]
FEATURES = ["payments_count_1h", "payments_sum_30d", "shops_distinct_1h", "is_suspicious"]


async def main() -> None:
    clock = ManualClock(PAYMENTS[0][0] - timedelta(hours=1))
    async with temporary(store, clock=clock):
        served = []
        for at, card, amount, shop in PAYMENTS:
            clock.advance(at - clock.now())
            await store.publish("payment", card, {"amount": amount, "shop": shop})
            await store.drain()
            served.append((await store.get_features(FEATURES, [card]))[card])
            print(f"{at:%d %b %H:%M}", card, *served[-1].values())
        labels = [
            {"card_id": card, "timestamp": at, "is_fraud": shop == "jeweller"}
            for at, card, _, shop in PAYMENTS
        ]
        rows = await store.get_historical_features(labels, FEATURES)
        found = [{name: row[name] for name in FEATURES} for row in rows]
        print("history has what was served:", found == served)
        clock.advance("2h")
        print("two hours later:", await payments["count", "1h"].get("c2"), "in the last hour")


if __name__ == "__main__":
    asyncio.run(main())
