"""Features of every type with values at known times, for tests of point-in-time reads."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Literal
from uuid import UUID

import msgspec

from headwater import FeatureStore, entity, feature

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
HUGE = 2**62 + 1


class Color(Enum):
    """An enum with texts."""

    RED = "red"
    BLUE = "blue"


class Place(msgspec.Struct):
    """A value with fields."""

    city: str
    visits: int


TYPES: dict[str, Any] = {
    "count": int,
    "rate": float,
    "active": bool,
    "name": str,
    "since": datetime,
    "scores": list[float],
    "born": date,
    "token": UUID,
    "color": Color,
    "size": Literal["s", "m"],
    "price": Decimal,
    "place": Place,
    "maybe": int | None,
}
VALUES: dict[str, Any] = {
    "count": HUGE,
    "rate": 0.25,
    "active": True,
    "name": 'Ada "é"',
    "since": START - DAY,
    "scores": [1.5, -2.0],
    "born": date(1815, 12, 10),
    "token": UUID(int=5),
    "color": Color.RED,
    "size": "m",
    "price": Decimal("12.50"),
    "place": Place("Paris", 2),
    "maybe": None,
}


def declare_all_types(store: FeatureStore) -> None:
    """Declare a feature of each type for users, and one of shops, whose ids are numbers."""

    @entity(store)
    class User:
        user_id: str

    @entity(store)
    class Shop:
        shop_id: int

    for name, annotation in TYPES.items():
        _declare(User, name, annotation)

    @feature(entity=Shop, trigger="rated", default=2.5)
    def rating(shop_id: int, event: object) -> float:
        return 0.0


def _declare(user: type, name: str, annotation: Any) -> None:
    def function(user_id: str, event: object) -> Any: ...

    function.__name__ = name
    function.__annotations__ = {"user_id": str, "return": annotation}
    feature(entity=user, trigger="changed")(function)


async def write_all(store: FeatureStore) -> None:
    """Write one value of each feature, as of START."""
    for name, value in VALUES.items():
        await store.set_feature(name, "ada", value, as_of=START)
    await store.set_feature("rating", 7, 4.5, as_of=START)


def rows() -> list[dict[str, Any]]:
    """Return a frame: before the values, exactly at their time, twice, and of an unknown user."""
    return [
        {"user_id": "ada", "shop_id": 7, "timestamp": START + DAY, "label": 1},
        {"user_id": "ada", "shop_id": 7, "timestamp": START - DAY, "label": 2},
        {"user_id": "ada", "shop_id": 7, "timestamp": START, "label": 3},
        {"user_id": "ada", "shop_id": 7, "timestamp": START, "label": 3},
        {"user_id": "bob", "shop_id": 8, "timestamp": START + DAY, "label": 4},
    ]
