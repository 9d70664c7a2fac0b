"""Metadata of documents, field by field, so that filters are looked up and not computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headwater.ports import Compare

TABLE = "metadata_values (index_id, field, kind, value, metadata_id, is_element)"
REMOVE = """
DELETE FROM metadata_values WHERE index_id = ? AND field = ? AND kind = ? AND value = ?
    AND metadata_id = ? AND is_element = ?
"""

ValueRow = tuple[int, str, str, Any, int, int]

_LARGEST = 2**63
_ORDERED = ("number", "text")
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


def conditions(compare: Compare) -> Iterator[tuple[str, list[Any]]]:
    """Yield SQL conditions and their arguments; a row that meets any of them meets the comparison.

    One for each kind of value, because SQLite looks up a list of values only of one kind.
    """
    sign = _COMPARISONS.get(compare.operator)
    if sign is not None:
        pair = _pair(compare.value)
        if pair is not None and pair[0] in _ORDERED:
            condition = f"field = ? AND kind = ? AND value {sign} ? AND NOT is_element"
            yield condition, [compare.field, *pair]
        return
    values = [compare.value] if compare.operator == "eq" else compare.value
    pairs = map(_pair, values) if isinstance(values, Sequence) else []
    by_kind: dict[str, list[Any]] = {}
    for kind, value in filter(None, pairs):
        by_kind.setdefault(kind, []).append(value)
    for kind, same_kind in by_kind.items():
        places = ", ".join("?" * len(same_kind))
        yield f"field = ? AND kind = ? AND value IN ({places})", [compare.field, kind, *same_kind]
