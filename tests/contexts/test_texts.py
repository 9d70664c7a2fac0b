"""Values in texts: written as a person would write them, for every type."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any
from uuid import UUID

import pytest

from headwater import ContextItem, FeatureStore, context, feature
from headwater.core.formats import as_text


class Colour(str, Enum):  # noqa: UP042 - unlike a StrEnum, its own text is Colour.RED
    RED = "red"


class Size(IntEnum):
    LARGE = 3


class Weekday(Enum):
    MONDAY = 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("gold", "gold"),
        (Colour.RED, "red"),
        (Size.LARGE, "3"),
        (Weekday.MONDAY, "1"),
        (Decimal("1.50"), "1.50"),
        (date(2026, 1, 15), "2026-01-15"),
        (datetime(2026, 1, 15, 9, 30, tzinfo=UTC), "2026-01-15T09:30:00+00:00"),
        (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (timedelta(seconds=90), "PT90S"),
        (7, "7"),
        (0.5, "0.5"),
        (True, "True"),
        (["red", Decimal("1.50")], '["red","1.50"]'),
        ({"a": 1}, '{"a":1}'),
    ],
)
def test_a_value_reads_without_the_quotes_of_json(value: Any, text: str) -> None:
    assert as_text(value) == text


async def test_templates_say_values_as_they_read(store: FeatureStore, user: type) -> None:
    @feature(entity=user)
    def colour(user_id: str) -> Colour:
        return Colour.RED

    @feature(entity=user)
    def balance(user_id: str) -> Decimal:
        return Decimal("1.50")

    @feature(entity=user, template="{colour} for {balance}")
    def blurb(user_id: str) -> str:
        return ""

    @context(store)
    async def made(user_id: str) -> list[ContextItem]:
        return [ContextItem.template("{colour}: {balance}"), ContextItem.template("{blurb}")]

    assert (await made("u1")).content == "red: 1.50\n\nred for 1.50"
