"""Wrong declarations of windows: each error names the problem and what can be written instead."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, TypedDict
from uuid import UUID

import msgspec
import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.declarations.window_options import WindowOptions, declared_windows
from headwater.errors import DeclarationError, InvalidInputError


class Paid(TypedDict):
    amount: float
    method: str


def declare(**options: Any) -> Any:
    store = FeatureStore()

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="pay", **{"window": "1h", "aggregate": "count", **options})
    def spend(user_id: str, event: ServiceEvent) -> Paid:
        return Paid(amount=1.0, method="card")

    return spend


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"where": {"methd": "card"}}, "where= names 'methd', and contributions have the fields"),
        ({"where": {"$or": [{"method": "card"}, {"$not": {"sum": 1}}]}}, "where= names 'sum'"),
        ({"value": "sum"}, "value= names 'sum', and contributions have the fields amount, method"),
        ({"by": "category"}, "by= names 'category'"),
        ({"window": "36501d", "hop": "365d"}, "the window '36501d' is longer than 100 years"),
        ({"window": "36500d"}, "the window '36500d' has 36500 hops of 1d"),
        ({"window": "30d", "hop": "1s"}, "has 2592000 hops of 1s"),
        ({"aggregate": []}, "aggregate= is empty; write one or several, such as ['count', 'sum']"),
        ({"window": []}, "window= is empty; write one or several, such as ['1h', '7d']"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=re.escape(message)):
        declare(**options)


@pytest.mark.parametrize("key", ["count", 3, ("count",), ("sum", "1h")])
def test_a_handle_names_the_features_that_it_has(key: Any) -> None:
    asked = list(key) if isinstance(key, tuple) else [key]
    message = f"'spend' has no {asked!r}; it has ['count', '1h']"
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        declare()[key]


ORDER = "6f2c1d3e-0000-4000-8000-00000000000a"


class Bought(TypedDict):
    price: Decimal
    at: datetime
    kind: Literal["book", "game"] | None
    tags: list[str]
    count: int
    ratio: float
    free: Any
    day: date
    order: UUID


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"price": {"$gte": 100}}, "compares 'price' with 100, which a value of type Decimal can"),
        ({"price": "1.10"}, "compares 'price' with '1.10'"),
        ({"at": {"$gt": "2026-01-01"}}, "compares 'at' with '2026-01-01'"),
        ({"kind": "boook"}, "compares 'kind' with 'boook'"),
        ({"kind": {"$nin": ["book", "gam"]}}, "compares 'kind' with 'gam'"),
        ({"tags": 3}, "compares 'tags' with 3, which a value of type list[str] can never be"),
        ({"count": "3"}, "compares 'count' with '3'"),
        ({"count": True}, "compares 'count' with True"),
        ({"day": {"$gte": "2026-1-1"}}, "compares 'day' with '2026-1-1'"),
        ({"order": ORDER.upper()}, f"compares 'order' with '{ORDER.upper()}'"),
        ({"order": {"$lt": ORDER}}, "compares 'order' with"),
        ({"ratio": {"$lt": "half"}}, "compares 'ratio' with 'half'"),
    ],
)
def test_a_filter_that_nothing_can_meet_is_refused(where: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        declared_windows("w", Bought, WindowOptions("1h", "count", where=where))


@pytest.mark.parametrize(
    "where",
    [
        {"price": None, "at": {"$ne": None}},
        {"kind": {"$in": ["book", "game"]}, "tags": "new"},
        {"count": {"$gte": 2.5}, "ratio": 1, "free": {"$gte": 3}},
        {"day": {"$gte": "2026-01-01", "$ne": "2026-12-25"}, "order": ORDER},
    ],
)
def test_filters_compare_with_what_a_field_can_be(where: dict[str, Any]) -> None:
    assert declared_windows("w", Bought, WindowOptions("1h", "count", where=where))


def test_fields_may_not_be_left_out() -> None:
    class Sale(msgspec.Struct, omit_defaults=True):
        amount: float
        kind: str = "book"

    store = FeatureStore()

    @entity(store)
    class User:
        user_id: str

    def sales(user_id: str, event: ServiceEvent) -> Any:
        return Sale(1.0)

    sales.__annotations__["return"] = Sale
    with pytest.raises(DeclarationError, match="declare Sale without omit_defaults"):
        feature(entity=User, trigger="sale", window="1h", aggregate="count", by="kind")(sales)


def test_windows_of_microseconds_have_different_names() -> None:
    spend = declare(window=[timedelta(microseconds=1_500), timedelta(microseconds=1_600)])
    assert spend.definition.windows.members == ("spend_count_1500us", "spend_count_1600us")
