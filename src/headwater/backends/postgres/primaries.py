"""Which of several Postgres servers is the primary, for all connections of a process."""

from __future__ import annotations

from contextlib import suppress

import asyncpg

from headwater.backends.postgres.connections import DirectConnection, Primary
from headwater.backends.postgres.errors import UNANSWERED
from headwater.settings.servers import PostgresSettings

TIMELINE = "('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int"
"""The number that every promotion raises; in the control file it may still be the former one."""

_PRIMARY = f"SELECT system_identifier, {TIMELINE} FROM pg_control_system()"
_LATEST: dict[frozenset[str], Primary] = {}
"""The primary that the process has seen last, for each set of servers."""


def servers_with_one_primary(settings: PostgresSettings) -> frozenset[str]:
    """Return the servers of which one is the primary; none if there is nothing to choose."""
    is_choice = len(settings.servers) > 1 and settings.target != "any"
    return frozenset(settings.servers) if is_choice else frozenset()


def latest_primary(servers: frozenset[str]) -> Primary | None:
    """Return the primary that any connection of the process has reached last."""
    return _LATEST.get(servers)


async def ask_primary(connection: DirectConnection, seconds: float) -> None:
    """Let the server of a connection say on which timeline of which cluster it is."""
    connection.primary = Primary(0, 0, connection.server)
    with suppress(*UNANSWERED):
        [(cluster, timeline)] = await connection.fetch(_PRIMARY, timeout=seconds)
        connection.primary = Primary(cluster, timeline, connection.server)


def accept(connection: DirectConnection, servers: frozenset[str]) -> None:
    """Make the server of a connection the primary; raise if it has a successor.

    A former primary may still accept writes, and would lose them.
    """
    primary, latest = connection.primary, _LATEST.get(servers)
    assert primary is not None
    if latest and latest.cluster == primary.cluster and latest.timeline > primary.timeline:
        connection.terminate()
        raise asyncpg.exceptions.TargetServerAttributeNotMatched(
            f"a former primary answers: it is on timeline {primary.timeline}, and this process has "
            f"seen {latest.timeline}; if it was restored, restart the process"
        )
    _LATEST[servers] = primary
