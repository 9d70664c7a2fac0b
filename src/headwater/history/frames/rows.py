"""The rows that a query returned, as a DuckDB relation."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb

from headwater.core.duckdb_session import Session
from headwater.ports import Rows

_TYPES = {
    bool: "BOOLEAN",
    int: "BIGINT",
    float: "DOUBLE",
    Decimal: "DOUBLE",
    str: "VARCHAR",
    datetime: "TIMESTAMP",
    date: "DATE",
    list: "JSON",
    tuple: "JSON",
    dict: "JSON",
}


def relation_of(rows: Rows) -> duckdb.DuckDBPyRelation:
    """Return a relation of a new connection with these rows."""
    types = {
        name: _type([row[place] for row in rows.rows]) for place, name in enumerate(rows.columns)
    }
    connection = duckdb.connect(":memory:")
    connection.execute("SET TimeZone = 'UTC'")
    with TemporaryDirectory(prefix="headwater-") as folder:
        duck = Session(connection, Path(folder))
        duck.load_rows(
            "query", [dict(zip(rows.columns, row, strict=True)) for row in rows.rows], types
        )
    return connection.table("query")


def _type(values: Sequence[Any]) -> str:
    """Return the type of a column by the Python types of its values."""
    present = [value for value in values if value is not None]
    if present and all(isinstance(value, datetime) and value.tzinfo for value in present):
        return "TIMESTAMPTZ"
    types = {_TYPES.get(type(value), "VARCHAR") for value in present}
    if types == {"BIGINT", "DOUBLE"}:
        return "DOUBLE"
    return types.pop() if len(types) == 1 else "VARCHAR"
