"""Queries of users: one read-only statement, with errors that explain the problem."""

from __future__ import annotations

from collections.abc import Mapping

import asyncpg

from headwater.backends.postgres.errors import headline
from headwater.backends.postgres.pool import Connection
from headwater.core.sql_sources import mentioned
from headwater.errors import InvalidInputError
from headwater.ports import Rows

# The classes of Postgres's error codes that concern the statement: unsupported, cardinality,
# data, transaction state, routines, access and names, check options, limits, raised by PL/pgSQL.
_QUERY_ERRORS = frozenset({"0A", "21", "22", "25", "2F", "38", "39", "42", "44", "54", "P0"})
_EXISTS = "SELECT to_regclass(format('%I', $1::text)) IS NOT NULL"


async def run_query(connection: Connection, sql: str, sources: Mapping[str, str]) -> Rows:
    """Run a query over views and tables of Postgres."""
    if "\0" in sql:
        # It would end the statement, and Postgres would read the rest as a protocol message.
        raise InvalidInputError("the query contains the character U+0000; remove it")
    try:
        async with connection.transaction(readonly=True):
            return await _run(connection, sql)
    except asyncpg.UndefinedTableError as error:
        await _check_sources(connection, sql, sources)
        raise _invalid(error) from error
    except asyncpg.PostgresError as error:
        if error.sqlstate[:2] not in _QUERY_ERRORS:
            raise
        raise _invalid(error) from error
    finally:
        if not connection.is_closed():
            await connection.reset()  # the query may have changed settings or taken locks


async def _run(connection: Connection, sql: str) -> Rows:
    statement = await connection.prepare(sql)
    columns = [attribute.name for attribute in statement.get_attributes()]
    if not columns:
        raise InvalidInputError("the query returns no rows; make it one SELECT")
    if statement.get_parameters():
        raise InvalidInputError(
            "the query has parameters, which are not supported; write values instead"
        )
    return Rows(columns, [tuple(row) for row in await statement.fetch()])


def _invalid(error: asyncpg.PostgresError) -> InvalidInputError:
    return InvalidInputError(f"the query cannot be run: {headline(error)}")


async def _check_sources(connection: Connection, sql: str, sources: Mapping[str, str]) -> None:
    for name in mentioned(sql, sources):
        if not await connection.fetchval(_EXISTS, name):
            raise InvalidInputError(
                f"source {name!r} is not a table or view in Postgres; load {sources[name]!r} into "
                f"a table {name!r}, in the schema of Headwater or in public"
            )
