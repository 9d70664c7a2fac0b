"""Metadata of documents, field by field, so that filters are looked up and not computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headwater.ports import Compare

TABLE = "metadata_values (index_id, field, kind, value, metadata_id, is_element)"

ValueRow = tuple[int, str, str, Any, int, int]

_LARGEST = 2**63
_COMPARISONS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}


def value_rows(index: int, metadata_id: int, metadata: Mapping[str, Any]) -> list[ValueRow]:
    """Return the rows of one document's metadata."""
    rows = {
        (index, field, *pair, metadata_id, int(is_element))
        for field, value in metadata.items()
        for pair, is_element in _scalars(value)
    }
    return list(rows)


def _scalars(value: Any) -> Iterator[tuple[tuple[str, Any], bool]]:
    """Yield the scalars of a field and whether each is an element of a list."""
    if isinstance(value, list | tuple):
        pairs = [(_pair(element), True) for element in value]
    else:
        pairs = [(_pair(value), False)]
    for pair, is_element in pairs:
        if pair is not None:
            yield pair, is_element


def _pair(value: Any) -> tuple[str, Any] | None:
    """Return the kind and the stored form of a scalar; None for another value."""
    match value:
        case None:
            return "null", 0
        case bool():
            return "bool", int(value)
        case str():
            return "text", value
        case int() | float():
            fits = isinstance(value, float) or -_LARGEST <= value < _LARGEST
            return "number", value if fits else float(value)
    return None


def condition(compare: Compare) -> tuple[str, list[Any]]:
    """Return the SQL condition of a comparison on rows of the table, and its arguments."""
    if compare.operator in _COMPARISONS:
        pair = _pair(compare.value)
        if pair is None or pair[0] not in ("number", "text"):
            return "0", []
        sign = _COMPARISONS[compare.operator]
        return f"field = ? AND kind = ? AND value {sign} ? AND NOT is_element", [
            compare.field,
            *pair,
        ]
    single = compare.operator == "eq"
    values = [compare.value] if single else compare.value
    if isinstance(values, str) or not isinstance(values, list | tuple | set | frozenset):
        return "0", []
    pairs = [pair for value in values if (pair := _pair(value)) is not None]
    either = " OR ".join(["(kind = ? AND value = ?)"] * len(pairs)) or "0"
    return f"field = ? AND ({either})", [compare.field, *(x for pair in pairs for x in pair)]
