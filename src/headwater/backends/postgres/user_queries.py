"""Queries of users: one read-only statement, with errors that explain the problem."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import asyncpg
from asyncpg.prepared_stmt import PreparedStatement

from headwater.backends.postgres.errors import headline
from headwater.backends.postgres.pool import Connection
from headwater.core.sql_sources import HAS_PARAMETERS, NO_ROWS, SEVERAL_STATEMENTS, mentioned
from headwater.errors import InvalidInputError, QueryError
from headwater.ports import Rows

# The classes of Postgres's error codes that concern the statement: unsupported, cardinality,
# data, transaction state, routines, access and names, check options, limits, raised by PL/pgSQL.
_QUERY_ERRORS = frozenset({"0A", "21", "22", "25", "2F", "38", "39", "42", "44", "54", "P0"})
_EXISTS = "SELECT to_regclass(format('%I', $1::text)) IS NOT NULL"


async def run_query(connection: Connection, sql: str, sources: Mapping[str, str]) -> Rows:
    """Run a query over views and tables of Postgres."""
    async with _reading(connection, sql, sources):
        statement, columns = await _prepare(connection, sql)
        return Rows(columns, [tuple(row) for row in await statement.fetch()])


async def prepare_query(
    connection: Connection, sql: str, sources: Mapping[str, str]
) -> Sequence[str]:
    """Check a query without running it; return the names of its columns."""
    async with _reading(connection, sql, sources):
        _, columns = await _prepare(connection, sql)
        return columns


@asynccontextmanager
async def _reading(
    connection: Connection, sql: str, sources: Mapping[str, str]
) -> AsyncIterator[None]:
    """Run a block in a read-only transaction, with errors that explain the query's problem."""
    if "\0" in sql:
        # It would end the statement, and Postgres would read the rest as a protocol message.
        raise QueryError("the query contains the character U+0000; remove it")
    try:
        async with connection.transaction(readonly=True):
            yield
    except asyncpg.PostgresSyntaxError as error:
        raise QueryError(_syntax_problem(error)) from error
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


async def _prepare(connection: Connection, sql: str) -> tuple[PreparedStatement, list[str]]:
    statement = await connection.prepare(sql)
    columns = [attribute.name for attribute in statement.get_attributes()]
    if not columns:
        raise QueryError(NO_ROWS)
    if statement.get_parameters():
        raise QueryError(HAS_PARAMETERS)
    return statement, columns


def _syntax_problem(error: asyncpg.PostgresSyntaxError) -> str:
    problem = headline(error)
    # The only sign of several statements: they are not counted.
    is_several = problem.startswith("cannot insert multiple commands")
    return SEVERAL_STATEMENTS if is_several else f"the query cannot be run: {problem}"


def _invalid(error: asyncpg.PostgresError) -> InvalidInputError:
    return InvalidInputError(f"the query cannot be run: {headline(error)}")


async def _check_sources(connection: Connection, sql: str, sources: Mapping[str, str]) -> None:
    for name in mentioned(sql, sources):
        if not await connection.fetchval(_EXISTS, name):
            raise InvalidInputError(
                f"source {name!r} is not a table or view in Postgres; load {sources[name]!r} into "
                f"a table {name!r}, in the schema of Headwater or in public"
            )
