"""Reads from a replica, once it has all that the primary had when the read began."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

import asyncpg
from msgspec.structs import replace
from prometheus_client import Counter

from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.errors import LOST, UNANSWERED, headline, reason
from headwater.backends.postgres.pool import Postgres
from headwater.backends.postgres.primaries import TIMELINE
from headwater.core.logging import log
from headwater.core.masking import FileText
from headwater.errors import BackendUnavailableError
from headwater.settings.servers import PostgresSettings

T = TypeVar("T")

SHORT_SECONDS = 0.1
"""How long a short read waits for a replica: it would hardly take longer on the primary."""

_POLL_SECONDS = 0.02
# Of the last question whether a replica has caught up.
_ANSWER_SECONDS = 0.02
# A connection may take longer than a short read waits, and is used by later ones.
_CONNECT_SECONDS = 1.0
# A replica that could not be used is not tried again for so long.
_PAUSE_SECONDS = 10.0
_POSITION = f"""
SELECT system_identifier, current_database(), {TIMELINE}, pg_current_wal_lsn()::text
FROM pg_control_system()
"""
# After a promotion, the control file of a replica has the new timeline only when something is
# flushed; what it receives is shown at once, but not to every user.
_STATE = """
SELECT system_identifier = $1 AND current_database() = $2 AS is_same, pg_is_in_recovery(),
       greatest(min_recovery_end_timeline, (SELECT received_tli FROM pg_stat_wal_receiver)) = $3,
       coalesce(pg_last_wal_replay_lsn() >= $4::text::pg_lsn, false)
FROM pg_control_system(), pg_control_recovery()
"""
READS = Counter(
    "headwater_replica_reads_total",
    "Reads that may use a replica, while `postgres.replica_url` is set; `server` is `replica`, or "
    "`primary` if the replica could not be used.",
    ["server"],
)


class UnusableError(Exception):
    """A replica cannot be read; the message says why."""


class Position(NamedTuple):
    """A moment of a primary: its cluster, its database, and how far its log is written.

    A promotion begins a timeline; positions on two of them cannot be compared.
    """

    cluster: int
    database: str
    timeline: int
    lsn: str


async def position_of(connection: Connection) -> Position:
    """Return the position of a primary: all commits until now are before it."""
    try:
        [row] = await connection.fetch(_POSITION)
    except UNANSWERED as error:
        raise UnusableError(f"the primary cannot say how far it is: {headline(error)}") from None
    return Position(*row)


async def wait_for(connection: Connection, position: Position, seconds: float) -> None:
    """Wait until a replica has replayed the log to a position; raise UnusableError if it does not.

    The position of another cluster means nothing, and that of a former replica may never come.
    """
    deadline = time.monotonic() + seconds
    while True:
        left = deadline - time.monotonic()
        try:
            async with _answered_within(max(left, 0) + _ANSWER_SECONDS, connection):
                [row] = await connection.fetch(_STATE, *position)
        except UNANSWERED as error:
            raise UnusableError(f"it cannot say how far it is: {headline(error)}") from None
        is_same, is_replica, is_on_timeline, has_replayed = row
        if not is_same:
            raise UnusableError("it belongs to another cluster, or is another database")
        if not is_replica:
            raise UnusableError("it is not in recovery, so it is no longer a replica")
        if not is_on_timeline:
            raise UnusableError("it follows another primary, or has just begun to follow this one")
        if has_replayed:
            return
        if left <= 0:
            raise UnusableError(f"it is more than {seconds:g} s behind the primary")
        await asyncio.sleep(min(_POLL_SECONDS, seconds / 20))


@asynccontextmanager
async def _answered_within(seconds: float, connection: Connection) -> AsyncIterator[None]:
    """Close the connection of a block that takes longer, and raise TimeoutError.

    Cancelling the block could have to wait for the end of a transaction.
    """
    loop = asyncio.get_running_loop()
    timer = loop.call_later(seconds, connection.terminate)
    try:
        yield
    except LOST as error:
        if loop.time() < timer.when():
            raise
        raise TimeoutError(f"it did not answer within {seconds:.2g} s") from error
    finally:
        timer.cancel()


def replicas_of(settings: PostgresSettings) -> list[PostgresSettings]:
    """Return the settings of a connection to each replica."""
    if not settings.replica_url:
        return []
    patience = min(settings.connect_timeout, max(settings.replica_timeout, _CONNECT_SECONDS))
    given = replace(
        settings,
        url=settings.replica_url,
        hosts="",
        target_session_attrs="any",
        connect_timeout=patience,
    )
    urls = [given.url_of(server) for server in given.servers]
    if isinstance(settings.replica_url, FileText):
        urls = [FileText.of(text, settings.replica_url.path) for text in urls]
    # `postgres.password` is for a URL that has none.
    own = "" if urlsplit(settings.replica_url).password else settings.password
    return [replace(given, url=text, password=own) for text in urls]


def replica_pools(settings: PostgresSettings, parameters: Mapping[str, str]) -> list[Postgres]:
    """Return the connections to each replica, with these parameters of the server."""
    pools = [
        Postgres(replica, parameters, url="postgres.replica_url")
        for replica in replicas_of(settings)
    ]
    # The processes of a store begin with different replicas.
    random.shuffle(pools)
    return pools


class ReplicaReads:
    """Runs reads on a replica, or on the primary if there is none that can be used."""

    def __init__(
        self, primary: Postgres, replicas: Sequence[Postgres], wait_seconds: float
    ) -> None:
        """A read waits for so long until a replica has what the primary has."""
        self._primary = primary
        self._replicas = replicas
        self._wait_seconds = wait_seconds
        self._retry_at = dict.fromkeys(replicas, 0.0)
        """When each replica may be tried; 0 unless the last attempt failed."""

    async def run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run the work, which has to be safe to repeat, after all commits until now."""
        if not self._replicas:
            return await self._primary.run(work)
        if position := await self._position():
            for replica in filter(self._is_due, self._replicas):
                if self._retry_at[replica]:
                    # Other reads do not follow until it answers again.
                    self._retry_at[replica] = time.monotonic() + _PAUSE_SECONDS
                try:
                    result = await replica.run(partial(self._read, replica, position, work))
                except (UnusableError, BackendUnavailableError) as error:
                    if isinstance(error.__cause__, asyncpg.QueryCanceledError):
                        raise  # the statement timeout: it would take as long on the primary
                    self._pause(error, replica)
                else:
                    READS.labels("replica").inc()
                    return result
        READS.labels("primary").inc()
        return await self._primary.run(work)

    async def _position(self) -> Position | None:
        """Return the position of the primary; None if no replica may be tried."""
        if not any(map(self._is_due, self._replicas)):
            return None
        try:
            return await self._primary.run(position_of)
        except UnusableError as error:
            self._pause(error, *self._replicas)
            return None

    async def _read(
        self,
        replica: Postgres,
        position: Position,
        work: Callable[[Connection], Awaitable[T]],
        connection: Connection,
    ) -> T:
        await wait_for(connection, position, self._wait_seconds)
        self._retry_at[replica] = 0.0
        return await work(connection)

    def _is_due(self, replica: Postgres) -> bool:
        return time.monotonic() >= self._retry_at[replica]

    def _pause(self, error: Exception, *replicas: Postgres) -> None:
        log.warning("replica not used", reason=reason(error))
        for replica in replicas:
            self._retry_at[replica] = time.monotonic() + _PAUSE_SECONDS
