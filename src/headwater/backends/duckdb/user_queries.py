"""Queries of users: one statement that returns rows, and its rows as Python values."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

import duckdb

from headwater.core.duckdb_session import Session, headline
from headwater.core.sql_sources import HAS_PARAMETERS, NO_ROWS, SEVERAL_STATEMENTS
from headwater.errors import QueryError
from headwater.ports import Rows

Relation: TypeAlias = duckdb.DuckDBPyRelation

_AWARE = "TIMESTAMP WITH TIME ZONE"


def check_query(duck: Session, sql: str) -> None:
    """Raise QueryError unless a query is one statement that returns rows."""
    try:
        statements = duck.connection.extract_statements(sql)
    except duckdb.Error as error:
        raise QueryError(f"the query cannot be run: {headline(error)}") from error
    # DuckDB puts a statement without a text in front of a PIVOT.
    create = duckdb.StatementType.CREATE
    written = [statement for statement in statements if statement.query or statement.type != create]
    if len(written) > 1:
        raise QueryError(SEVERAL_STATEMENTS)
    if not written or written[0].expected_result_type != [duckdb.ExpectedResultType.QUERY_RESULT]:
        raise QueryError(NO_ROWS)
    if written[0].named_parameters:
        raise QueryError(HAS_PARAMETERS)


def fetch(answer: Relation) -> Rows:
    """Return all rows of a result, with aware times in UTC."""
    kinds = [str(kind) for kind in answer.types]
    aware = [place for place, kind in enumerate(kinds) if _AWARE in kind]
    if not aware:
        return Rows(answer.columns, answer.fetchall())
    # Converting DuckDB's aware times to Python needs another package; naive UTC times do not.
    plain = [kind.replace(_AWARE, "TIMESTAMP") for kind in kinds]
    casts = ", ".join(f"CAST(#{number} AS {kind})" for number, kind in enumerate(plain, 1))
    rows = answer.project(casts).fetchall()
    return Rows(answer.columns, [_with_utc(row, aware) for row in rows])


def _with_utc(row: tuple[Any, ...], places: Sequence[int]) -> tuple[Any, ...]:
    return tuple(_in_utc(item) if place in places else item for place, item in enumerate(row))


def _in_utc(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC)
    if isinstance(value, list):
        return [_in_utc(item) for item in value]
    if isinstance(value, dict):
        return {name: _in_utc(item) for name, item in value.items()}
    return value
