"""Bringing the tables up to this version: numbered files, each run once, one process at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files

import asyncpg

from headwater.backends.postgres.partition_tables import extend
from headwater.backends.postgres.pool import Connection, address, session_settings, translated
from headwater.core.clock import SystemClock
from headwater.core.logging import log
from headwater.errors import BackendError, SchemaError
from headwater.settings.schema import PostgresSettings, Settings

_OLDEST_SERVER = 14
_LOCK = "SELECT pg_advisory_xact_lock(hashtext('headwater tables'), hashtext($1))"
_HAS_TABLES = "SELECT to_regclass(format('%I._meta', $1::text)) IS NOT NULL"


def _steps() -> dict[int, str]:
    folder = files(__package__).joinpath("schema")
    found = sorted((file for file in folder.iterdir()), key=lambda file: file.name)
    return {int(file.name[:4]): file.read_text() for file in found}


_STEPS = _steps()
VERSION = max(_STEPS)
"""The schema version that this version of Headwater works with."""


async def migrate(settings: Settings) -> list[int]:
    """Makes or upgrades the tables; gives the versions that were applied, none if none was due.

    All of it happens or nothing. Of processes that call this at once, one does the work and the
    others find it done.
    """
    postgres = settings.postgres
    async with _connected(postgres) as connection, connection.transaction():
        await _check_server(connection)
        await connection.execute(_LOCK, postgres.schema)
        # CREATE SCHEMA IF NOT EXISTS asks for the right to create even where there is one.
        if not await connection.fetchval("SELECT to_regnamespace($1)", f'"{postgres.schema}"'):
            await connection.execute(f'CREATE SCHEMA "{postgres.schema}"')
        version = await installed(connection, postgres.schema)
        check_not_newer(version, postgres.schema)
        due = [number for number in _STEPS if number > version]
        for number in due:
            await connection.execute(_STEPS[number])
            await connection.execute("UPDATE _meta SET version = $1", number)
        await extend(connection, SystemClock().now())
    if due:
        log.debug("tables migrated", schema=postgres.schema, version=VERSION)
    return due


async def installed(connection: Connection, schema: str) -> int:
    """The version of the tables that are there, 0 if there are none."""
    if not await connection.fetchval(_HAS_TABLES, schema):
        return 0
    version: int = await connection.fetchval("SELECT version FROM _meta")
    return version


def check_not_newer(version: int, schema: str) -> None:
    """Raises if the tables are of a version that this one does not know."""
    if version > VERSION:
        raise SchemaError(
            schema,
            f"are of a newer Headwater (version {version}, this one knows {VERSION})",
            "upgrade headwater, or use another HEADWATER_POSTGRES_SCHEMA; nothing was changed",
        )


def check_not_older(version: int, schema: str) -> None:
    """Raises if there are no tables or they are of an earlier version."""
    if version == 0:
        raise SchemaError(schema, "do not exist yet", "run `headwater migrate`")
    if version < VERSION:
        raise SchemaError(
            schema,
            f"are of an older Headwater (version {version}, this one needs {VERSION})",
            "run `headwater migrate`",
        )


@asynccontextmanager
async def _connected(settings: PostgresSettings) -> AsyncIterator[Connection]:
    """A connection that may take its time: an index over much history does."""
    with translated(settings):
        connection = await asyncpg.connect(
            address(settings),
            timeout=settings.connect_timeout,
            server_settings=session_settings(settings, timeout=0),
        )
        try:
            yield connection
        finally:
            await connection.close(timeout=settings.connect_timeout)


async def _check_server(connection: Connection) -> None:
    version = connection.get_server_version()
    if version.major < _OLDEST_SERVER:
        raise BackendError(
            f"this is Postgres {version.major}; Headwater needs {_OLDEST_SERVER} or later"
        )
    encoding = await connection.fetchval("SHOW server_encoding")
    if encoding != "UTF8":
        raise BackendError(
            f"the database keeps text as {encoding}, which cannot hold every value; make one with "
            "ENCODING 'UTF8' and name it in HEADWATER_POSTGRES_URL"
        )
