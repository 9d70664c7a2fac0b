"""Filters of metadata as conditions in SQL."""

from __future__ import annotations

from typing import Any

import msgspec

from headwater.backends.postgres.vectors.stored_text import comparable, escape
from headwater.ports import AllOf, AnyOf, Compare, Filter, Not

_SIGNS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_encode = msgspec.json.Encoder().encode


def condition(given: Filter, parameters: list[Any]) -> str:
    """Return SQL that is true or false, never NULL; values are appended to the parameters."""
    if isinstance(given, AllOf):
        return _joined(" AND ", "true", given.conditions, parameters)
    if isinstance(given, AnyOf):
        return _joined(" OR ", "false", given.conditions, parameters)
    if isinstance(given, Not):
        return f"NOT {condition(given.condition, parameters)}"
    return f"coalesce({_comparison(given, parameters)}, false)"


def _joined(word: str, empty: str, conditions: Any, parameters: list[Any]) -> str:
    return f"({word.join(condition(inner, parameters) for inner in conditions) or empty})"


def _comparison(given: Compare, parameters: list[Any]) -> str:
    if given.operator in _SIGNS:
        return _order(given, comparable(given.value), parameters)
    field = _field(given, parameters)
    if given.operator == "in":
        values: Any = given.value
        accepted = _parameter([_json(value) for value in values], parameters)
        return f"{field} @> ANY ({accepted}::jsonb[])"
    # A scalar contains itself, and a list its elements.
    return f"{field} @> {_parameter(_json(given.value), parameters)}::jsonb"


def _order(given: Compare, value: Any, parameters: list[Any]) -> str:
    sign = _SIGNS[given.operator]
    if isinstance(value, str):
        field, operand = _field(given, parameters), _parameter(value, parameters)
        # Compared by code points, which jsonb does not.
        text = f"({field} #>> '{{}}') COLLATE \"C\""
        return f"jsonb_typeof({field}) = 'string' AND {text} {sign} {operand}::text"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "false"
    field, operand = _field(given, parameters), _parameter(_json(value), parameters)
    return f"jsonb_typeof({field}) = 'number' AND {field} {sign} {operand}::jsonb"


def _field(given: Compare, parameters: list[Any]) -> str:
    return f"(c.fields -> {_parameter(escape(given.field), parameters)}::text)"


def _json(value: Any) -> str:
    return _encode(comparable(value)).decode()


def _parameter(value: Any, parameters: list[Any]) -> str:
    parameters.append(value)
    return f"${len(parameters)}"
