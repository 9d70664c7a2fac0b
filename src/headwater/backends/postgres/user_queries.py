"""Queries of our users: one statement that reads, and answers that say what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping

import asyncpg

from headwater.backends.postgres.errors import headline
from headwater.backends.postgres.pool import Connection
from headwater.core.sql_sources import mentioned
from headwater.errors import InvalidInputError
from headwater.ports import Rows

# The classes of Postgres's error codes that speak of the statement: unsupported, cardinality,
# data, transaction state, routines, access and names, check options, limits, raised by PL/pgSQL.
_OF_THE_QUERY = frozenset({"0A", "21", "22", "25", "2F", "38", "39", "42", "44", "54", "P0"})
_EXISTS = "SELECT to_regclass(format('%I', $1::text)) IS NOT NULL"


async def answer(connection: Connection, sql: str, sources: Mapping[str, str]) -> Rows:
    """Runs a query; names in it are views and tables of Postgres."""
    if "\0" in sql:
        # It would end the statement, and the rest be taken for a message of the protocol.
        raise InvalidInputError("the query has a zero character (U+0000); take it out")
    try:
        async with connection.transaction(readonly=True):
            return await _run(connection, sql)
    except asyncpg.UndefinedTableError as error:
        await _check_loaded(connection, sql, sources)
        raise _refused(error) from error
    except asyncpg.PostgresError as error:
        if error.sqlstate[:2] not in _OF_THE_QUERY:
            raise
        raise _refused(error) from error
    finally:
        if not connection.is_closed():
            await connection.reset()  # it may have changed settings, or taken locks


async def _run(connection: Connection, sql: str) -> Rows:
    statement = await connection.prepare(sql)
    columns = [attribute.name for attribute in statement.get_attributes()]
    if not columns:
        raise InvalidInputError("the query returns no rows; make it one SELECT")
    if statement.get_parameters():
        raise InvalidInputError("the query has parameters, which nobody fills; write values")
    return Rows(columns, [tuple(row) for row in await statement.fetch()])


def _refused(error: asyncpg.PostgresError) -> InvalidInputError:
    return InvalidInputError(f"the query cannot be run: {headline(error)}")


async def _check_loaded(connection: Connection, sql: str, sources: Mapping[str, str]) -> None:
    for name in mentioned(sql, sources):
        if not await connection.fetchval(_EXISTS, name):
            raise InvalidInputError(
                f"source {name!r} is no table or view in Postgres; load {sources[name]!r} into a "
                f"table {name!r}, in the schema of Headwater or in public"
            )
