"""Connections to Postgres: made as they are needed, limited, and given back clean."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from typing import TypeAlias, TypeVar

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from headwater.backends.postgres.errors import FAILURES, LOST, translate
from headwater.errors import ClosedError, ConfigError
from headwater.settings.schema import PostgresSettings

T = TypeVar("T")

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]"

# The server gives a statement up by itself; only when it cannot say so does the driver.
_GRACE_SECONDS = 5.0
_CLOSING_SECONDS = 10.0


class Postgres:
    """The connections of one process, and the only place where their errors are translated."""

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._begin: Callable[[], Awaitable[None]] | None = None
        self._beginning = asyncio.Lock()
        self._pid = os.getpid()

    async def open(self) -> None:
        with translated(self._settings):
            # None at first: whoever opens a store need not use its past.
            self._pool = await asyncpg.create_pool(
                address(self._settings),
                min_size=0,
                max_size=self._settings.pool_size,
                timeout=self._settings.connect_timeout,
                command_timeout=self._settings.timeout + _GRACE_SECONDS,
                server_settings=session_settings(self._settings, self._settings.timeout),
                init=_prepare,
                reset=_leave_as_is,
            )

    def first(self, begin: Callable[[], Awaitable[None]]) -> None:
        """Says what is to be done, with ``reach``, before anything is run."""
        self._begin = begin

    async def begun(self) -> None:
        """Does what is to be done first, once; what fails is tried again at the next use."""
        if self._begin is None:
            return
        async with self._beginning:
            if self._begin is not None:
                await self._begin()
                self._begin = None

    async def run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Runs the work, again if its connection was lost; so it has to be safe to repeat."""
        await self.begun()
        return await self.reach(work)

    async def reach(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """The same for what has to be done before anything is run."""
        with translated(self._settings):
            try:
                return await self._once(work)
            except LOST:
                # What ended this connection has most likely ended the others too.
                await self.opened().expire_connections()
                return await self._once(work)

    async def _once(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        pool = self.opened()
        connection = await pool.acquire(timeout=self._settings.timeout)
        try:
            return await work(connection)
        finally:
            # A server that does not answer is not waited for a second time; what cannot be given
            # back is ended by the pool, and is no news beside what the work came to.
            with suppress(*FAILURES):
                await pool.release(connection, timeout=_GRACE_SECONDS)

    def opened(self) -> asyncpg.Pool[asyncpg.Record]:
        """The connections, unless they are closed or another process's."""
        if self._pid != os.getpid():
            raise ClosedError(
                "this store was opened before a fork and cannot be used in the child process; "
                "make a FeatureStore there"
            )
        if self._pool is None:
            raise ClosedError("this store is closed")
        return self._pool

    async def close(self) -> None:
        """Lets what runs come to its end, if it does so soon."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            async with asyncio.timeout(_CLOSING_SECONDS):
                await pool.close()
        except TimeoutError:
            pool.terminate()


def address(settings: PostgresSettings) -> str:
    """The URL that was set, or an error that says how to set it."""
    if not settings.url:
        raise ConfigError(
            "Postgres has no address; set HEADWATER_POSTGRES_URL to "
            "postgresql://user:password@host:5432/database"
        )
    return settings.url


def session_settings(settings: PostgresSettings, timeout: float) -> dict[str, str]:
    """What holds for a connection however the server is set up; no timeout is 0."""
    milliseconds = str(math.ceil(timeout * 1_000))
    return {
        "application_name": f"headwater/{settings.schema}",
        "search_path": f'"{settings.schema}", public',
        "timezone": "UTC",
        "statement_timeout": milliseconds,
        # A process that stands still must not keep a partition of the outbox to itself.
        "idle_in_transaction_session_timeout": milliseconds,
        # What was taken is let go of at its source once the transaction has returned.
        "synchronous_commit": "on",
        # Compiling a search through many partitions takes longer than most searches.
        "jit": "off",
    }


@contextmanager
def translated(settings: PostgresSettings, limit: str = "postgres.timeout") -> Iterator[None]:
    """Turns the errors of driver, server and network into ours; ``limit`` says how long it had."""
    try:
        yield
    except FAILURES as error:
        raise translate(error, settings, limit) from error


async def _prepare(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    await connection.set_type_codec(
        "numeric", schema="pg_catalog", encoder=str, decoder=_number, format="text"
    )


async def _leave_as_is(connection: Connection) -> None:
    """Spares the round trip that would wipe a connection: none of our own statements marks it.

    Those of our users may, and are wiped up after (`queries.py`).
    """


def _number(text: str) -> int | Decimal:
    """A numeric value; a sum of whole numbers is one in every other database."""
    return int(text) if text.lstrip("-").isdigit() else Decimal(text)
