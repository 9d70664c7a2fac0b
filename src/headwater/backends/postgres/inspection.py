"""What `headwater doctor` finds in Postgres."""

from __future__ import annotations

import time

from msgspec.structs import replace

from headwater.backends.postgres.addresses import addresses, session_settings
from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.errors import reason
from headwater.backends.postgres.migrate import check_version, connected, installed_version
from headwater.backends.postgres.replicas import (
    UnusableError,
    position_of,
    replicas_of,
    wait_for,
)
from headwater.core.clock import Clock
from headwater.core.masking import mask_address
from headwater.core.tls import exposure
from headwater.errors import ConfigError, HeadwaterError, SchemaError
from headwater.model.health import Finding, Findings, add_clock_skew, add_encryption
from headwater.settings.schema import Settings
from headwater.settings.servers import PostgresSettings

_VERIFIED = "set postgres.tls.mode to verify-full, and postgres.tls.ca_file"
_SAFE = ("fsync", "full_page_writes", "synchronous_commit")
_FULL_SHARE = 0.8
# Of other users, pg_stat_activity shows nothing to a user with few rights.
_CONNECTIONS = (
    "SELECT sum(numbackends)::int, current_setting('max_connections')::int FROM pg_stat_database"
)
# Of all schemas, as the last vacuum counted: reading the sizes of files takes long, and rights.
_SIZES = """
SELECT nspname, sum(relpages::bigint + coalesce(toasted, 0)) * current_setting('block_size')::int
FROM pg_class AS relation JOIN pg_namespace ON pg_namespace.oid = relnamespace
CROSS JOIN LATERAL (
    SELECT sum(relpages::bigint) AS toasted FROM pg_class WHERE oid = relation.reltoastrelid
) AS toast
WHERE relkind IN ('r', 'i', 'm') AND nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
GROUP BY nspname
"""
_NEIGHBOURS = 3
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
    try:
        addresses(postgres)
    except ConfigError as error:
        findings = Findings("relational store", "postgres.url")
        findings.error("connection", str(error), "correct postgres.url")
        return findings.all
    findings = Findings(
        "relational store", f"Postgres at {mask_address(postgres.url_of(*postgres.servers))}"
    )
    try:
        async with connected(postgres, statement_seconds=postgres.timeout) as connection:
            if settings.env == "production":
                told = exposure(connection.server, connection.encryption)
                add_encryption(findings, told, _VERIFIED)
            await _inspect_pooler(connection, postgres, findings)
            await _inspect_server(connection, clock, findings)
            await _inspect_vector(connection, findings)
            await _inspect_tables(connection, postgres.schema, findings)
            await _inspect_sizes(connection, postgres.schema, findings)
            if postgres.hosts:
                for server in postgres.servers:
                    await _inspect_host(server, postgres, findings)
            for replica in replicas_of(postgres):
                await _inspect_replica(connection, replica, findings)
    except HeadwaterError as error:
        findings.error("connection", str(error), "start Postgres, or correct postgres.url")
    return findings.all


async def _inspect_pooler(
    connection: Connection, settings: PostgresSettings, findings: Findings
) -> None:
    """Examine whether the parameters of the session hold, which poolers may ignore."""
    if settings.pooler == "transaction":
        findings.ok("pooler", "every statement is in a transaction that needs no session")
        return
    # Exactly: that of a session without parameters may name the schema, too.
    expected = session_settings(settings, settings.timeout)["search_path"]
    if await connection.fetchval("SHOW search_path") != expected:
        findings.error(
            "pooler",
            "the parameters of the session are ignored: there is a pooler, such as PgBouncer",
            "set postgres.pooler to transaction",
        )


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
            "name the primary server in postgres.url, or all servers in postgres.hosts",
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


async def _inspect_host(server: str, settings: PostgresSettings, findings: Findings) -> None:
    """Examine one of several servers, which the store may have to use after a failover."""
    looked_at = f"Postgres at {server}"
    alone = replace(settings, hosts=server, target_session_attrs="any")
    try:
        async with connected(alone, statement_seconds=settings.timeout) as connection:
            is_standby = await connection.fetchval("SELECT pg_is_in_recovery()")
    except HeadwaterError as error:
        findings.warning(
            "host",
            f"it cannot be used if the primary fails: {reason(error)}",
            "start it, or take it out of postgres.hosts",
            looked_at,
        )
    else:
        findings.ok("host", "a standby" if is_standby else "a primary", looked_at)


async def _inspect_replica(
    primary: Connection, replica: PostgresSettings, findings: Findings
) -> None:
    """Examine whether reads can use a replica; otherwise they use the primary."""
    looked_at = f"replica at {mask_address(replica.url)}"
    try:
        position = await position_of(primary)
        async with connected(replica, statement_seconds=replica.timeout) as connection:
            await wait_for(connection, position, replica.replica_timeout)
    except (HeadwaterError, UnusableError) as error:
        findings.warning(
            "replica",
            f"reads use the primary: {reason(error)}",
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


async def _inspect_sizes(connection: Connection, schema: str, findings: Findings) -> None:
    """Add what the schema takes of the database, and which others take most."""
    sizes = {name: int(size) for name, size in await connection.fetch(_SIZES) if size}
    own = sizes.pop(schema, 0)
    others = sorted(sizes.items(), key=lambda item: item[1], reverse=True)[:_NEIGHBOURS]
    told = "".join(f", {name!r} {_mebibytes(size)}" for name, size in others)
    findings.ok("size", f"about {_mebibytes(own)} in schema {schema!r}{told}")


def _mebibytes(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MiB"


async def _inspect_tables(connection: Connection, schema: str, findings: Findings) -> None:
    version = await installed_version(connection, schema)
    try:
        check_version(version, schema)
    except SchemaError as error:
        findings.error("migrations", str(error), "run `headwater migrate`")
    else:
        findings.ok("migrations", f"tables of version {version} in schema {schema!r}")
