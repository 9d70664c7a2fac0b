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
    return f"({word.join(condition(each, parameters) for each in conditions) or empty})"


def _comparison(given: Compare, parameters: list[Any]) -> str:
    field = f"c.fields -> {_parameter(escape(given.field), parameters)}::text"
    if given.operator == "in":
        values: Any = given.value
        wanted = [_json(value) for value in values]
        return f"({field}) @> ANY ({_parameter(wanted, parameters)}::jsonb[])"
    if given.operator == "eq":
        # A scalar contains itself, and a list its elements.
        return f"({field}) @> {_parameter(_json(given.value), parameters)}::jsonb"
    return _order(field, _SIGNS[given.operator], comparable(given.value), parameters)


def _order(field: str, sign: str, value: Any, parameters: list[Any]) -> str:
    if isinstance(value, str):
        # Compared by code points, which jsonb does not.
        wanted = _parameter(value, parameters)
        text = f"({field}) #>> '{{}}'"
        return f"jsonb_typeof({field}) = 'string' AND ({text}) COLLATE \"C\" {sign} {wanted}::text"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "false"
    wanted = _parameter(_json(value), parameters)
    return f"jsonb_typeof({field}) = 'number' AND ({field}) {sign} {wanted}::jsonb"


def _json(value: Any) -> str:
    return _encode(comparable(value)).decode()


def _parameter(value: Any, parameters: list[Any]) -> str:
    parameters.append(value)
    return f"${len(parameters)}"
