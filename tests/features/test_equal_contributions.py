"""Equal values of contributions count as one, filters find them, and newer fields count too."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypedDict
from uuid import UUID

import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.settings.schema import Settings
from headwater.testing import ManualClock

pytestmark = pytest.mark.both_environments


class Seen(TypedDict):
    tags: set[str]
    prices: list[float]
    price: float
    exact: Decimal
    at: datetime


FIRST = Seen(
    tags={"a", "b", "c", "d"},
    prices=[1],
    price=5,
    exact=Decimal("1.0"),
    at=datetime.fromisoformat("2026-01-01T00:00:00+00:00"),
)
AGAIN = Seen(
    tags={"d", "c", "b", "a"},
    prices=[1.0],
    price=5.0,
    exact=Decimal("1.00"),
    at=datetime.fromisoformat("2026-01-01T01:00:00+01:00"),
)
KEYS = {"price": "5.0", "exact": "1", "at": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize("field", Seen.__annotations__)
async def test_equal_values_are_one_distinct_value_and_one_key(
    settings: Settings, clock: ManualClock, field: str
) -> None:
    store = FeatureStore(settings=settings, clock=clock)
    is_key = field in KEYS

    @entity(store)
    class User:
        user_id: str

    @feature(
        entity=User,
        trigger="seen",
        window="1d",
        aggregate=["count", "distinct"],
        value=field,
        by=field if is_key else None,
    )
    def seen(user_id: str, event: ServiceEvent) -> Seen:
        return FIRST if event.payload["first"] else AGAIN

    async with store:
        for is_first in (True, False):
            await store.publish("seen", "ada", {"first": is_first})
        await store.drain()
        names = ["seen_count_1d", "seen_distinct_1d"]
        row = {"user_id": "ada", "timestamp": clock.now()}
        (past,) = await store.get_historical_features([row], names)
        for values in ((await store.get_features(names, ["ada"]))["ada"], past):
            count, distinct = values["seen_count_1d"], values["seen_distinct_1d"]
            assert count == ({KEYS[field]: 2} if is_key else 2)
            assert distinct == ({KEYS[field]: 1} if is_key else 1)


@dataclass
class Visit:
    minutes: int


@dataclass
class NewVisit:
    minutes: int
    kind: str = "gym"


async def test_a_contribution_has_the_default_of_a_field_that_its_class_did_not_have(
    settings: Settings, clock: ManualClock
) -> None:
    def declared(kind: type, **options: Any) -> FeatureStore:
        store = FeatureStore(settings=settings, clock=clock)

        @entity(store)
        class User:
            user_id: str

        @feature(
            entity=User,
            trigger="visit",
            window="7d",
            aggregate="sum",
            value="minutes",
            **options,
        )
        def visits(user_id: str, event: ServiceEvent) -> kind:  # type: ignore[valid-type]
            made: object = kind(event.payload["minutes"])
            return made

        return store

    async with declared(Visit) as before:
        await before.publish("visit", "ada", {"minutes": 60})
        await before.drain()
    async with declared(NewVisit, where={"kind": "gym"}, by="kind") as after:
        await after.publish("visit", "ada", {"minutes": 30})
        await after.drain()
        row = {"user_id": "ada", "timestamp": clock.now()}
        (past,) = await after.get_historical_features([row], ["visits_sum_7d"])
        assert past["visits_sum_7d"] == {"gym": 90}
        assert (await after.get_feature("visits_sum_7d", "ada")) == {"gym": 90}


class Order(TypedDict):
    day: date
    order: UUID


@pytest.mark.parametrize(
    ("where", "count"),
    [
        ({"day": {"$gte": "2026-02-01"}}, 2),
        ({"day": "2026-02-01"}, 1),
        ({"order": str(UUID(int=1))}, 1),
    ],
)
async def test_filters_compare_with_dates_and_uuids_as_json_has_them(
    settings: Settings, clock: ManualClock, where: dict[str, Any], count: int
) -> None:
    store = FeatureStore(settings=settings, clock=clock)

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="order", window="1d", aggregate="count", where=where)
    def orders(user_id: str, event: ServiceEvent) -> Order:
        month = event.payload["month"]
        return Order(day=date(2026, month, 1), order=UUID(int=month))

    async with store:
        for month in (1, 2, 3):
            await store.publish("order", "ada", {"month": month})
        await store.drain()
        row = {"user_id": "ada", "timestamp": clock.now()}
        (past,) = await store.get_historical_features([row], ["orders_count_1d"])
        for values in ((await store.get_features(["orders_count_1d"], ["ada"]))["ada"], past):
            assert values["orders_count_1d"] == count
