"""Families of windows, and what their features must be by definition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.core.clock import to_micros
from headwater.testing import ManualClock
from headwater.windows.plan import parse_window

WINDOWS = ["1h", "7d", "30d"]
NAMES = [
    f"spend_{aggregate}_{window}" for window in WINDOWS for aggregate in ("count", "sum", "last3")
]
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


@dataclass
class Purchase:
    """A contribution with fields."""

    amount: float
    category: str | None = None


def declare(
    store: FeatureStore, *, factor: float = 1.0, windows: Sequence[str] = WINDOWS, **options: Any
) -> type:
    """Declare users with the windows of what they spend; return their class."""

    @entity(store)
    class User:
        user_id: str

    @feature(
        entity=User,
        trigger="buy",
        window=windows,
        aggregate=["count", "sum", "last(3)"],
        **options,
    )
    def spend(user_id: str, event: ServiceEvent) -> float | None:
        amount = event.payload["amount"]
        return None if amount == 0 else factor * float(amount)

    @feature(
        entity=User,
        trigger="buy",
        window="7d",
        aggregate=["sum", "count"],
        value="amount",
        by="category",
        max_keys=2,
    )
    def bought(user_id: str, event: ServiceEvent) -> Purchase:
        return Purchase(float(event.payload["amount"]), event.payload.get("category"))

    return User


async def buy(
    store: FeatureStore,
    clock: ManualClock,
    amount: float,
    ago: timedelta = timedelta(0),
    user_id: str = "u1",
) -> None:
    """Publish a purchase, and handle all that were published."""
    payload = {"amount": amount}
    await store.publish("buy", user_id, payload, timestamp=clock.now() - ago)
    await store.drain()


async def served(store: FeatureStore, user_id: str = "u1") -> dict[str, Any]:
    """Return what is served of spend."""
    values = (await store.get_features(NAMES, [user_id]))[user_id]
    return {name: values[name] for name in NAMES}


def expected(contributions: Sequence[tuple[datetime, float]], now: datetime) -> dict[str, Any]:
    """Return the same by definition; contributions are in the order of their writes."""
    values: dict[str, Any] = {}
    for name in WINDOWS:
        window = parse_window(name)
        first = (to_micros(now) - window.span) // window.hop
        covered = [one for one in contributions if to_micros(one[0]) // window.hop >= first]
        amounts = [amount for _, amount in sorted(covered, key=lambda one: one[0])]
        values[f"spend_count_{name}"] = len(amounts)
        values[f"spend_sum_{name}"] = sum(amounts)
        values[f"spend_last3_{name}"] = amounts[-3:] or None
    return values
