"""What `headwater doctor` finds in Postgres."""

from __future__ import annotations

import time

from headwater.backends.postgres.errors import headline
from headwater.backends.postgres.migrate import check_version, connected, installed_version
from headwater.backends.postgres.pool import Connection
from headwater.backends.postgres.replicas import (
    UnusableError,
    position_of,
    replicas_of,
    wait_for,
)
from headwater.core.clock import Clock
from headwater.core.masking import mask_address
from headwater.errors import HeadwaterError, SchemaError
from headwater.model.health import Finding, Findings, add_clock_skew
from headwater.settings.groups import PostgresSettings
from headwater.settings.schema import Settings

_SAFE = ("fsync", "full_page_writes", "synchronous_commit")
_FULL_SHARE = 0.8
_CONNECTIONS = (
    "SELECT count(*) FILTER (WHERE backend_type = 'client backend'),"
    " current_setting('max_connections')::int FROM pg_stat_activity"
)
_VECTOR = (
    "SELECT available.default_version, installed.extversion"
    " FROM pg_available_extensions AS available"
    " LEFT JOIN pg_extension AS installed ON installed.extname = available.name"
    " WHERE available.name = 'vector'"
)
_MAY_CREATE = "SELECT has_database_privilege(current_database(), 'CREATE')"


async def inspect(settings: Settings, clock: Clock) -> list[Finding]:
    """Examine the server and the schema that the settings name."""
    postgres = settings.postgres
    findings = Findings("relational store", f"Postgres at {mask_address(postgres.url)}")
    try:
        async with connected(postgres, statement_seconds=postgres.timeout) as connection:
            await _inspect_server(connection, clock, findings)
            await _inspect_vector(connection, findings)
            await _inspect_tables(connection, postgres.schema, findings)
            for replica in replicas_of(postgres):
                await _inspect_replica(connection, replica, findings)
    except HeadwaterError as error:
        findings.error("connection", str(error), "start Postgres, or correct postgres.url")
    return findings.all


async def _inspect_server(connection: Connection, clock: Clock, findings: Findings) -> None:
    version = connection.get_server_version()
    findings.ok("connection", f"Postgres {version.major}.{version.minor}")
    await _inspect_writes(connection, findings)
    [(used, limit)] = await connection.fetch(_CONNECTIONS)
    if used > limit * _FULL_SHARE:
        findings.warning(
            "connections",
            f"{used} of {limit} connections are in use",
            "raise max_connections, lower postgres.pool_size, or use fewer processes",
        )
    else:
        findings.ok("connections", f"{used} of {limit} in use")
    sent = time.perf_counter()
    there = await connection.fetchval("SELECT clock_timestamp()")
    taken = time.perf_counter() - sent
    skew = (there - clock.now()).total_seconds() + taken / 2
    add_clock_skew(findings, skew, taken)


async def _inspect_writes(connection: Connection, findings: Findings) -> None:
    if await connection.fetchval("SELECT pg_is_in_recovery()"):
        findings.error(
            "writes",
            "the server is a standby, which cannot be written",
            "name the primary server in postgres.url",
        )
    unsafe = [name for name in _SAFE if await connection.fetchval(f"SHOW {name}") == "off"]
    if unsafe:
        findings.error(
            "fsync",
            f"{' and '.join(unsafe)} off: records and history can be lost when the machine dies",
            "turn on " + " and ".join(unsafe),
        )
    else:
        findings.ok("fsync", f"{', '.join(_SAFE)} are on")


async def _inspect_replica(
    primary: Connection, replica: PostgresSettings, findings: Findings
) -> None:
    """Examine whether long reads can use a replica; those that cannot use the primary."""
    looked_at = f"replica at {mask_address(replica.url)}"
    try:
        position = await position_of(primary)
        async with connected(replica, statement_seconds=replica.timeout) as connection:
            await wait_for(connection, position, replica.replica_timeout)
    except (HeadwaterError, UnusableError) as error:
        findings.warning(
            "replica",
            f"long reads use the primary: {headline(error.__cause__ or error)}",
            "start it, correct postgres.replica_url, or raise postgres.replica_timeout",
            looked_at,
        )
    else:
        findings.ok("replica", "it has all that the primary has", looked_at)


async def _inspect_vector(connection: Connection, findings: Findings) -> None:
    extension = await connection.fetchrow(_VECTOR)
    if extension is None:
        findings.error(
            "vector extension",
            "pgvector is not installed on the server, so documents cannot be indexed or searched",
            "install pgvector 0.8 or newer for this version of Postgres",
        )
    elif extension["extversion"] is not None:
        findings.ok("vector extension", f"pgvector {extension['extversion']}")
    elif await connection.fetchval(_MAY_CREATE):
        version = f"pgvector {extension['default_version']}; the first index adds it here"
        findings.ok("vector extension", version)
    else:
        findings.error(
            "vector extension",
            f"pgvector {extension['default_version']} is on the server, not in this database, and "
            "the user of postgres.url may not add it",
            "run CREATE EXTENSION vector in the database as its administrator",
        )


async def _inspect_tables(connection: Connection, schema: str, findings: Findings) -> None:
    version = await installed_version(connection, schema)
    try:
        check_version(version, schema)
    except SchemaError as error:
        findings.error("migrations", str(error), "run `headwater migrate`")
    else:
        findings.ok("migrations", f"tables of version {version} in schema {schema!r}")
