"""Creating and migrating the tables, once however many processes try it at the same time."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files

from headwater.backends.postgres.addresses import session_settings
from headwater.backends.postgres.connections import Connection, DirectConnection
from headwater.backends.postgres.partition_tables import extend
from headwater.backends.postgres.pool import connect, credentials_in, translated
from headwater.backends.postgres.records import append_entry
from headwater.core.clock import SystemClock
from headwater.core.logging import log
from headwater.errors import BackendError, SchemaError
from headwater.model.admin import AuditEntry
from headwater.model.callers import current_actor
from headwater.model.values import new_id
from headwater.settings.schema import Settings
from headwater.settings.servers import PostgresSettings

_OLDEST_SERVER = 14
_LOCK = "SELECT pg_advisory_xact_lock(hashtext('headwater tables'), hashtext($1))"
_HAS_TABLES = "SELECT to_regclass(format('%I._meta', $1::text)) IS NOT NULL"


VERSION = 13
"""The version of the tables that this version of Headwater works with."""

SCHEMA = files(__package__).joinpath("schema.sql").read_text()
"""The statements that create the tables."""

_UPGRADE = files(__package__).joinpath("upgrade.sql").read_text()
# How each kind of statement creates only what is missing, or replaces what a definition names.
_MISSING = {
    "TABLE": "CREATE TABLE IF NOT EXISTS",
    "INDEX": "CREATE INDEX IF NOT EXISTS",
    "UNIQUE INDEX": "CREATE UNIQUE INDEX IF NOT EXISTS",
    "SEQUENCE": "CREATE SEQUENCE IF NOT EXISTS",
    "VIEW": "CREATE OR REPLACE VIEW",
    "FUNCTION": "CREATE OR REPLACE FUNCTION",
    "TRIGGER": "CREATE OR REPLACE TRIGGER",
}


async def migrate(settings: Settings) -> list[int]:
    """Create the tables, or migrate earlier ones; return the versions that were applied.

    Of concurrent calls, one does it and the others find the tables. All of them are migrated, or
    none if this fails. Raises SchemaError if the tables are of a newer version.
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
        elif version < VERSION:
            # Tables that are missing here may exist in the schema public.
            await connection.execute(f'SET LOCAL search_path = "{postgres.schema}"')
            await connection.execute(_UPGRADE)
            await connection.execute(_missing(SCHEMA))
            await connection.execute("UPDATE _meta SET version = $1", VERSION)
            await append_entry(connection, _entry(postgres.schema))
        else:
            check_version(version, postgres.schema)
        await extend(connection, SystemClock().now(), postgres.tables_per_month)
    if version == VERSION:
        return []
    log.debug("tables migrated", schema=postgres.schema, was=version or 0, version=VERSION)
    return [VERSION]


def _missing(schema: str) -> str:
    """Return the statements that create what a schema lacks of this one."""
    return re.sub(r"(?m)^CREATE (UNIQUE INDEX|\w+)", lambda found: _MISSING[found[1]], schema)


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
            "stop the processes of that version, make a backup, and run `headwater migrate`",
        )


@asynccontextmanager
async def connected(
    settings: PostgresSettings, *, statement_seconds: float = 0
) -> AsyncIterator[DirectConnection]:
    """Connect; without a timeout of statements, as creating tables may have to wait for locks."""
    with translated(settings):
        parameters = session_settings(settings, statement_seconds)
        connection, _ = await connect(settings, credentials_in(settings), parameters)
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
