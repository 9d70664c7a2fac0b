"""Creating the tables, once however many processes try it at the same time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files

import asyncpg

from headwater.backends.postgres.partition_tables import extend
from headwater.backends.postgres.pool import Connection, address, session_settings, translated
from headwater.backends.postgres.records import append_entry
from headwater.core.clock import SystemClock
from headwater.core.logging import log
from headwater.errors import BackendError, SchemaError
from headwater.model.admin import AuditEntry
from headwater.model.callers import current_actor
from headwater.model.values import new_id
from headwater.settings.groups import PostgresSettings
from headwater.settings.schema import Settings

_OLDEST_SERVER = 14
_LOCK = "SELECT pg_advisory_xact_lock(hashtext('headwater tables'), hashtext($1))"
_HAS_TABLES = "SELECT to_regclass(format('%I._meta', $1::text)) IS NOT NULL"


VERSION = 10
"""The version of the tables that this version of Headwater works with."""

SCHEMA = files(__package__).joinpath("schema.sql").read_text()
"""The statements that create the tables."""


async def migrate(settings: Settings) -> list[int]:
    """Create the tables if there are none; return the versions that were applied.

    Of concurrent calls, one creates the tables and the others find them. Raises SchemaError if
    the tables are of another version.
    """
    postgres = settings.postgres
    async with connected(postgres) as connection, connection.transaction():
        await _check_server(connection)
        await connection.execute(_LOCK, postgres.schema)
        # CREATE SCHEMA IF NOT EXISTS needs the right to create even where the schema exists.
        if not await connection.fetchval("SELECT to_regnamespace($1)", f'"{postgres.schema}"'):
            await connection.execute(f'CREATE SCHEMA "{postgres.schema}"')
        version = await installed_version(connection, postgres.schema)
        if version is None:
            await connection.execute(SCHEMA)
            await connection.execute("INSERT INTO _meta (version) VALUES ($1)", VERSION)
            await append_entry(connection, _entry(postgres.schema))
        else:
            check_version(version, postgres.schema)
        await extend(connection, SystemClock().now())
    if version is not None:
        return []
    log.debug("tables created", schema=postgres.schema, version=VERSION)
    return [VERSION]


def _entry(schema: str) -> AuditEntry:
    now = SystemClock().now()
    return AuditEntry(
        id=new_id(),
        at=now,
        actor=current_actor(),
        action="migrate",
        target=schema,
        parameters={"version": VERSION},
        outcome="done",
        finished_at=now,
    )


async def installed_version(connection: Connection, schema: str) -> int | None:
    """Return the version of the tables, or None if they are missing."""
    if not await connection.fetchval(_HAS_TABLES, schema):
        return None
    version: int = await connection.fetchval("SELECT version FROM _meta")
    return version


def check_version(version: int | None, schema: str) -> None:
    """Raise SchemaError if the tables are missing or of another version."""
    if version is None:
        raise SchemaError(schema, "do not exist yet", "run `headwater migrate`")
    if version > VERSION:
        raise SchemaError(
            schema,
            f"are of a newer Headwater (version {version}, this one knows {VERSION})",
            "upgrade headwater, or use another HEADWATER_POSTGRES_SCHEMA; nothing was changed",
        )
    if version < VERSION:
        raise SchemaError(
            schema,
            f"are of an older Headwater (version {version}, this one needs {VERSION})",
            "use another HEADWATER_POSTGRES_SCHEMA; nothing was changed",
        )


@asynccontextmanager
async def connected(
    settings: PostgresSettings, *, statement_seconds: float = 0
) -> AsyncIterator[Connection]:
    """Connect; without a timeout of statements, as creating tables may have to wait for locks."""
    with translated(settings):
        connection = await asyncpg.connect(
            address(settings),
            timeout=settings.connect_timeout,
            server_settings=session_settings(settings, statement_seconds),
        )
        try:
            yield connection
        finally:
            await connection.close(timeout=settings.connect_timeout)


async def _check_server(connection: Connection) -> None:
    version = connection.get_server_version()
    if version.major < _OLDEST_SERVER:
        raise BackendError(
            f"the server is Postgres {version.major}; Headwater needs {_OLDEST_SERVER} or later"
        )
    encoding = await connection.fetchval("SHOW server_encoding")
    if encoding != "UTF8":
        raise BackendError(
            f"the encoding of the database is {encoding}, which cannot hold every value; create a "
            "database with ENCODING 'UTF8' and name it in HEADWATER_POSTGRES_URL"
        )
