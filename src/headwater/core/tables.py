"""Tables: results with many rows, which become data frames and which notebooks show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from importlib import import_module
from typing import Any, TypeVar

import msgspec

from headwater.core.codec import encode_custom
from headwater.core.json_values import plain
from headwater.errors import ConfigError

T = TypeVar("T")

_MOST_ROWS = 20
_SCALARS = {bool, int, float, str, bytes, date, datetime, timedelta}
_LONGEST_INT = 2**63
_OWN = __name__.partition(".")[0]


class Tabular:
    """A result that is a table.

    A row has a column for each field of an item. Fields of an event or another result inside of
    it are columns as well; those of your own types are one value.
    """

    __slots__ = ()

    def rows(self) -> Iterable[object]:
        """Return what the rows are made of."""
        raise NotImplementedError

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the rows as dicts, each with the same keys.

        >>> store.sync.get_features(["total_spend"], ["ada"]).to_dicts()
        [{'entity_id': 'ada', 'total_spend': 25.0}]
        """
        rows = [_row(item) for item in self.rows()]
        names = dict.fromkeys(name for row in rows for name in row)
        return [{name: row.get(name) for name in names} for row in rows]

    def to_pandas(self) -> Any:
        """Return a data frame of pandas, if that is installed.

        >>> store.sync.get_feature_history("total_spend", "ada").to_pandas()["value"].tolist()
        [25.0]
        """
        return _library("pandas").DataFrame(_columns(self.to_dicts()))

    def to_polars(self) -> Any:
        """Return a data frame of Polars, if that is installed.

        Columns with values of several types, or with objects and lists, are JSON texts.
        """
        return _library("polars").DataFrame(_typed(_columns(self.to_dicts())))

    def to_arrow(self) -> Any:
        """Return a table of Arrow, if pyarrow is installed; its columns are as those of Polars."""
        return _library("pyarrow").table(_typed(_columns(self.to_dicts())))

    def _repr_html_(self) -> str:
        """Return the first rows as HTML, which notebooks show."""
        from headwater.core import html  # noqa: PLC0415 - only notebooks need it

        rows = self.to_dicts()
        shown, hidden = rows[:_MOST_ROWS], len(rows) - _MOST_ROWS
        if not rows:
            return html.box(html.faint("no rows"))
        table = html.table(list(rows[0]), [list(row.values()) for row in shown])
        return html.box(table, html.faint(f"… {hidden:,} more rows") if hidden > 0 else "")


class Table(list[T], Tabular):
    """A list of results, which is also a table.

    >>> store.sync.get_feature_history("total_spend", "ada").to_pandas().shape
    (1, 5)
    """

    def rows(self) -> Iterable[object]:
        return self


class EntityTable(dict[Any, dict[str, Any]], Tabular):
    """Rows by the id of their entity."""

    def rows(self) -> Iterable[object]:
        return [{"entity_id": entity_id, **row} for entity_id, row in self.items()]


def _row(item: object) -> dict[str, Any]:
    if isinstance(item, Mapping):
        return dict(item)
    if not isinstance(item, msgspec.Struct):
        return {"value": item}
    row: dict[str, Any] = {}
    for name, value in zip(item.__struct_fields__, msgspec.structs.astuple(item), strict=True):
        if value is msgspec.UNSET:
            continue
        if isinstance(value, msgspec.Struct) and type(value).__module__.startswith(f"{_OWN}."):
            inner = _row(value)
            row |= {each if each not in row else f"{name}.{each}": inner[each] for each in inner}
        else:
            row[name if name not in row else f"{name}.{name}"] = value
    return row


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}


def _typed(columns: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    return {name: _column(values) for name, values in columns.items()}


def _column(values: list[Any]) -> list[Any]:
    """Return the values of a column in one type."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        return [None if value is None else float(value) for value in values]
    is_one = len(kinds) <= 1 and kinds <= _SCALARS
    if is_one and not (int in kinds and any(abs(value or 0) >= _LONGEST_INT for value in values)):
        return values
    return [None if value is None else _json(value) for value in values]


def _json(value: object) -> str:
    return msgspec.json.encode(plain(value), enc_hook=encode_custom).decode()


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"{name} is not installed; run `pip install {name}`, or use to_dicts()"
        ) from error
