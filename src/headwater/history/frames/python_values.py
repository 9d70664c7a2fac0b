"""Checks of ids and times that are Python objects, one by one."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from headwater.core.clock import to_micros
from headwater.declarations.features import EntityDef
from headwater.errors import InvalidInputError


def text_ids(entity: EntityDef, values: Sequence[Any]) -> list[str]:
    """Return ids as they are stored; raise InvalidInputError with the row of an invalid one."""
    ids = []
    for row, value in enumerate(values):
        try:
            ids.append(entity.text_id(value))
        except InvalidInputError as error:
            raise InvalidInputError(f"row {row}: {error}") from error
    return ids


def micros_of(name: str, values: Sequence[Any]) -> list[int]:
    """Return times as microseconds; raise InvalidInputError for one without a time zone."""
    return [_micros(name, row, value) for row, value in enumerate(values)]


def _micros(name: str, row: int, value: Any) -> int:
    if value is None or value != value:  # NaN, and NaT of pandas
        raise InvalidInputError(
            f"row {row} has no time in {name}; fill it in, or leave such rows out"
        )
    if isinstance(value, int | float):
        raise InvalidInputError(
            f"row {row}: {name} must be a datetime with a time zone, not the number {value}; "
            "datetime.fromtimestamp(seconds, UTC) converts seconds since 1970"
        )
    if not isinstance(value, datetime):
        raise InvalidInputError(
            f"row {row}: {name} must be a datetime with a time zone, not "
            f"{reprlib.repr(value)}; parse texts with datetime.fromisoformat"
        )
    if value.tzinfo is None:
        raise InvalidInputError(
            f"row {row}: {name} {value.isoformat()} has no time zone; pass an aware datetime, for "
            "example with .replace(tzinfo=UTC)"
        )
    return to_micros(value)
