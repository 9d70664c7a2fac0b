"""Long reads of history on a replica, once it has all that the primary had when the read began."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

import asyncpg
from msgspec.structs import replace
from prometheus_client import Counter

from headwater.backends.postgres.errors import headline
from headwater.backends.postgres.pool import Connection, Postgres
from headwater.core.logging import log
from headwater.core.masking import FileText
from headwater.errors import BackendUnavailableError
from headwater.settings.groups import PostgresSettings

T = TypeVar("T")

_POLL_SECONDS = 0.02
# A replica that could not be used is not tried again for so long.
_PAUSE_SECONDS = 10.0
_POSITION = """
SELECT system_identifier, current_database(), pg_current_wal_lsn()::text FROM pg_control_system()
"""
_STATE = """
SELECT system_identifier = $1 AND current_database() = $2 AS is_same, pg_is_in_recovery(),
       coalesce(pg_last_wal_replay_lsn() >= $3::text::pg_lsn, false)
FROM pg_control_system()
"""
READS = Counter(
    "headwater_replica_reads_total",
    "Long reads of history while `postgres.replica_url` is set; `server` is `replica`, or "
    "`primary` if the replica could not be used.",
    ["server"],
)


class UnusableError(Exception):
    """A replica cannot be read; the message says why."""


class Position(NamedTuple):
    """A moment of a primary: its cluster, its database, and how far its log is written."""

    cluster: int
    database: str
    lsn: str


async def position_of(connection: Connection) -> Position:
    """Return the position of a primary: all commits until now are before it."""
    [row] = await connection.fetch(_POSITION)
    return Position(*row)


async def wait_for(connection: Connection, position: Position, seconds: float) -> None:
    """Wait until a replica has replayed the log to a position; raise UnusableError if it does not.

    The position of another cluster means nothing, and that of a former replica may never come.
    """
    deadline = time.monotonic() + seconds
    while True:
        [(is_same, is_replica, has_replayed)] = await connection.fetch(_STATE, *position)
        if not is_same:
            raise UnusableError("it belongs to another cluster, or is another database")
        if not is_replica:
            raise UnusableError("it is not in recovery, so it is no longer a replica")
        if has_replayed:
            return
        if time.monotonic() >= deadline:
            raise UnusableError(f"it is more than {seconds:g} s behind the primary")
        await asyncio.sleep(_POLL_SECONDS)


def replicas_of(settings: PostgresSettings) -> list[PostgresSettings]:
    """Return the settings of a connection to each replica."""
    url = urlsplit(settings.replica_url)
    user, at, hosts = url.netloc.rpartition("@")
    urls = [url._replace(netloc=f"{user}{at}{host}").geturl() for host in hosts.split(",") if host]
    if isinstance(settings.replica_url, FileText):
        urls = [FileText.of(text, settings.replica_url.path) for text in urls]
    return [replace(settings, url=text) for text in urls]


class LongReads:
    """Runs long reads on a replica, or on the primary if there is none that can be used."""

    def __init__(self, primary: Postgres, settings: PostgresSettings) -> None:
        self._primary = primary
        self._wait_seconds = settings.replica_timeout
        self._replicas = [
            Postgres(replica, url="postgres.replica_url") for replica in replicas_of(settings)
        ]
        # The processes of a store begin with different replicas.
        random.shuffle(self._replicas)
        self._retry_at = 0.0

    async def run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run the work, which has to be safe to repeat, after all commits until now."""
        if not self._replicas:
            return await self._primary.run(work)
        if time.monotonic() >= self._retry_at:
            position = await self._primary.run(position_of)

            async def read(connection: Connection) -> T:
                await wait_for(connection, position, self._wait_seconds)
                return await work(connection)

            for replica in self._replicas:
                try:
                    result = await replica.run(read)
                except (UnusableError, BackendUnavailableError) as error:
                    cause = error.__cause__ or error
                    if isinstance(cause, asyncpg.QueryCanceledError):
                        raise  # the statement timeout: it would take as long on the primary
                    log.warning("replica not used", reason=headline(cause))
                else:
                    READS.labels("replica").inc()
                    return result
            self._retry_at = time.monotonic() + _PAUSE_SECONDS
        READS.labels("primary").inc()
        return await self._primary.run(work)

    async def close(self) -> None:
        for replica in self._replicas:
            await replica.close()
