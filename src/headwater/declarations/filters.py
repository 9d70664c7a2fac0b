"""Filters of a search: from the form that users write to conditions, and their exact meaning."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import ge, gt, le, lt
from typing import Any

from headwater.errors import InvalidInputError
from headwater.errors.hints import closest, quoted
from headwater.model.values import check_utf8
from headwater.ports import AllOf, AnyOf, Compare, Filter, Not
from headwater.ports.vectors import Scalar

_COMBINING = ("$and", "$or", "$not")
ORDERING: Mapping[str, Callable[[Any, Any], bool]] = {"gt": gt, "gte": ge, "lt": lt, "lte": le}
"""The operators that compare numbers with numbers, and texts with texts."""
_OPERATORS = ("$eq", "$ne", "$in", "$nin", *(f"${name}" for name in ORDERING), "$not")
_INSIDE_OF_A_FIELD = (
    "Write operators such as '$gte' inside of a field, as in {'year': {'$gte': 2020}}"
)
_MAX_DEPTH = 16
_MAX_VALUES = 1_000
_LARGEST = 2**63


def parse_filters(filters: Mapping[str, Any] | None) -> Filter | None:
    """Return the condition that a filter describes; None if it describes none.

    >>> parse_filters({"lang": "en", "year": {"$gte": 2020}})
    AllOf(conditions=[Compare(...'lang'...), Compare(...'year'...)])
    """
    if filters is None or (isinstance(filters, Mapping) and not filters):
        return None
    return _parse_all(filters, "filters", 0)


def _parse_all(filters: object, where: str, depth: int) -> Filter:
    """Return the condition of a mapping: all of its entries hold."""
    if not isinstance(filters, Mapping):
        raise InvalidInputError(
            f"{where} must be a mapping such as {{'lang': 'en'}}, not {reprlib.repr(filters)}"
        )
    if depth > _MAX_DEPTH:
        raise InvalidInputError(f"filters are nested more than {_MAX_DEPTH} levels deep")
    return _all([_parse_entry(key, value, depth) for key, value in filters.items()])


def _parse_entry(key: object, value: object, depth: int) -> Filter:
    if not isinstance(key, str):
        raise InvalidInputError(
            f"the name of a field of the metadata is a text, not {reprlib.repr(key)}"
        )
    if key == "$not":
        return Not(_parse_all(value, key, depth + 1))
    if key in _COMBINING:
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise InvalidInputError(
                f"{key} takes a list of filters such as [{{'lang': 'en'}}, {{'lang': 'de'}}], not "
                f"{reprlib.repr(value)}"
            )
        conditions = [_parse_all(element, f"an element of {key}", depth + 1) for element in value]
        return _all(conditions) if key == "$and" else AnyOf(conditions)
    if key.startswith("$"):
        hint = _nearest(key, _COMBINING, _INSIDE_OF_A_FIELD)
        raise InvalidInputError(f"unknown operator {quoted(key)} in filters; {hint}")
    check_utf8(key, f"the filter of {key!r}")
    if isinstance(value, Mapping):
        return _all([_parse_operator(key, name, operand, depth) for name, operand in value.items()])
    return Compare(key, "eq", _scalar(key, value))


def _parse_operator(field: str, name: object, value: object, depth: int) -> Filter:
    if name not in _OPERATORS:
        raise InvalidInputError(
            f"unknown operator {quoted(name)} in the filter of {quoted(field)}; "
            f"{_nearest(str(name), _OPERATORS)}"
        )
    if name == "$not":
        if not isinstance(value, Mapping) or depth >= _MAX_DEPTH:
            raise InvalidInputError(
                f"$not in the filter of {field!r} takes operators such as {{'$gte': 2020}}, not "
                f"{reprlib.repr(value)}"
            )
        return Not(_all([_parse_operator(field, *item, depth + 1) for item in value.items()]))
    if name in ("$in", "$nin"):
        among = Compare(field, "in", _scalars(field, str(name), value))
        return among if name == "$in" else Not(among)
    scalar = _scalar(field, value)
    if name in ("$eq", "$ne"):
        equal = Compare(field, "eq", scalar)
        return equal if name == "$eq" else Not(equal)
    if scalar is None or isinstance(scalar, bool):
        raise InvalidInputError(
            f"{name} in the filter of {field!r} compares with a number or a text, not {scalar!r}"
        )
    return Compare(field, name[1:], scalar)  # type: ignore[arg-type]  # one of ORDERING


def _nearest(name: str, operators: Sequence[str], more: str = "") -> str:
    """Return a hint for an unknown operator, whose ``$`` resembles none."""
    close = closest(name.removeprefix("$"), [operator[1:] for operator in operators])
    if close is not None:
        return f"did you mean '${close}'? {more}".rstrip()
    return f"choose one of {', '.join(operators)}" + (f". {more}" if more else "")


def _all(conditions: Sequence[Filter]) -> Filter:
    return conditions[0] if len(conditions) == 1 else AllOf(conditions)


def _scalars(field: str, operator: str, values: object) -> list[Scalar]:
    if not isinstance(values, Sequence | set | frozenset) or isinstance(values, str | bytes):
        raise InvalidInputError(
            f"{operator} in the filter of {field!r} takes a list of values, not "
            f"{reprlib.repr(values)}"
        )
    if len(values) > _MAX_VALUES:
        raise InvalidInputError(
            f"{operator} in the filter of {field!r} has {len(values)} values, more than the "
            f"maximum of {_MAX_VALUES}"
        )
    return [_scalar(field, value) for value in values]


def _scalar(field: str, value: object) -> Scalar:
    """Return a value that a field can be compared with."""
    if value is None or isinstance(value, bool):
        return value
    if type(value) is str:
        check_utf8(value, f"the filter of {field!r}")
        return value
    if type(value) is int and -_LARGEST <= value < _LARGEST:
        return value
    if type(value) is float and math.isfinite(value):
        return value
    remedy = "write a text, a number, true, false or None"
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes):
        remedy = "write {'$in': [...]} for one of several values"
    raise InvalidInputError(
        f"the filter of {field!r} cannot compare with {reprlib.repr(value)}; {remedy}"
    )


def comparisons(condition: Filter) -> Iterator[Compare]:
    """Yield the comparisons that a condition is made of."""
    match condition:
        case Compare():
            yield condition
        case Not(inner):
            yield from comparisons(inner)
        case AllOf(several) | AnyOf(several):
            for one in several:
                yield from comparisons(one)


def matches(condition: Filter, metadata: Mapping[str, Any]) -> bool:
    """Return whether the metadata of a chunk meets a condition.

    Vector stores evaluate conditions in their own language, with this meaning.

    >>> matches(parse_filters({"year": {"$gte": 2020}}), {"year": 2024})
    True
    """
    if isinstance(condition, Compare):
        return condition.field in metadata and _holds(condition, metadata[condition.field])
    if isinstance(condition, AllOf):
        return all(matches(inner, metadata) for inner in condition.conditions)
    if isinstance(condition, AnyOf):
        return any(matches(inner, metadata) for inner in condition.conditions)
    return not matches(condition.condition, metadata)


def _holds(condition: Compare, value: object) -> bool:
    operand: Any = condition.value
    if condition.operator in ORDERING:
        number = _is_number(value) and _is_number(operand)
        text = isinstance(value, str) and isinstance(operand, str)
        return (number or text) and ORDERING[condition.operator](value, operand)
    among = [operand] if condition.operator == "eq" else operand
    values = value if isinstance(value, list) else [value]
    return any(_is_equal(item, one) for item in values for one in among)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_equal(value: object, operand: Scalar) -> bool:
    if isinstance(value, list | dict):
        return False
    # True equals 1 in Python, and only there.
    return isinstance(value, bool) == isinstance(operand, bool) and value == operand
