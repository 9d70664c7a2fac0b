"""The pool of connections to Postgres."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from headwater.backends.postgres.errors import FAILURES, LOST, translate
from headwater.core.keep_alive import keep_alive
from headwater.errors import ClosedError, ConfigError
from headwater.settings.groups import PostgresSettings

if TYPE_CHECKING:
    _Connection = asyncpg.Connection[asyncpg.Record]
else:
    _Connection = asyncpg.Connection  # generic only for type checkers

T = TypeVar("T")

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]"

# The server cancels a statement that takes too long; the driver only if the server does not.
_GRACE_SECONDS = 5.0
_CLOSING_SECONDS = 10.0


class KeptAliveConnection(_Connection):
    """A connection with TCP keep-alive."""

    def __init__(self, protocol: Any, transport: asyncio.BaseTransport, *rest: Any) -> None:
        super().__init__(protocol, transport, *rest)
        keep_alive(transport)


class Postgres:
    """The connections of one process; errors of the driver are translated here."""

    def __init__(
        self, settings: PostgresSettings, parameters: Mapping[str, str] | None = None
    ) -> None:
        """Use these parameters of the server in each session, besides our own."""
        self._settings = settings
        self._parameters = parameters or {}
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._preparation: Callable[[], Awaitable[None]] | None = None
        self._preparing = asyncio.Lock()
        self._pid = os.getpid()

    async def open(self) -> None:
        with translated(self._settings):
            # No connection at first: a process that opens a store may never read history.
            self._pool = await asyncpg.create_pool(
                address(self._settings),
                min_size=0,
                max_size=self._settings.pool_size,
                timeout=self._settings.connect_timeout,
                command_timeout=self._settings.timeout + _GRACE_SECONDS,
                server_settings={
                    **session_settings(self._settings, self._settings.timeout),
                    **self._parameters,
                },
                connection_class=KeptAliveConnection,
                init=_prepare,
                reset=_leave_as_is,
            )

    def before_first_use(self, preparation: Callable[[], Awaitable[None]]) -> None:
        """Set the work, done with ``run_unprepared``, that has to succeed before anything runs."""
        self._preparation = preparation

    async def prepare(self) -> None:
        """Do the preparation once; if it fails, the next use tries it again."""
        if self._preparation is None:
            return
        async with self._preparing:
            if self._preparation is not None:
                await self._preparation()
                self._preparation = None

    async def run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run the work, again if its connection was lost: it has to be safe to repeat."""
        await self.prepare()
        return await self.run_unprepared(work)

    async def run_unprepared(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run the work as ``run`` does, without the preparation."""
        with translated(self._settings):
            try:
                return await self._once(work)
            except LOST:
                # The event that ended this connection has most likely ended the others too.
                await self.opened().expire_connections()
                return await self._once(work)

    async def _once(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        pool = self.opened()
        # The timeout of `acquire` would run it in a task.
        async with asyncio.timeout(self._settings.timeout):
            connection = await pool.acquire()
        try:
            return await work(connection)
        finally:
            # Do not wait again for a server that does not answer. The pool closes a connection
            # that cannot be released, and that error must not hide the result of the work.
            with suppress(*FAILURES):
                await pool.release(connection, timeout=_GRACE_SECONDS)

    def opened(self) -> asyncpg.Pool[asyncpg.Record]:
        """Return the pool; raise ClosedError if it is closed or was opened in another process."""
        if self._pid != os.getpid():
            raise ClosedError(
                "this store was opened before a fork and cannot be used in the child process; "
                "make a FeatureStore there"
            )
        if self._pool is None:
            raise ClosedError("this store is closed")
        return self._pool

    async def close(self) -> None:
        """Close the connections, waiting for running statements for a limited time."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            async with asyncio.timeout(_CLOSING_SECONDS):
                await pool.close()
        except TimeoutError:
            pool.terminate()


def address(settings: PostgresSettings) -> str:
    """Return the URL from the settings; raise ConfigError if there is none."""
    if not settings.url:
        raise ConfigError(
            "Postgres has no address; set HEADWATER_POSTGRES_URL to "
            "postgresql://user:password@host:5432/database"
        )
    return settings.url


def session_settings(settings: PostgresSettings, timeout: float) -> dict[str, str]:
    """Return settings of a session that override the server's; 0 means no timeout."""
    milliseconds = str(math.ceil(timeout * 1_000))
    return {
        "application_name": f"headwater/{settings.schema}",
        "search_path": f'"{settings.schema}", public',
        "timezone": "UTC",
        "statement_timeout": milliseconds,
        # A process that hangs must not keep its lock on a partition of the outbox.
        "idle_in_transaction_session_timeout": milliseconds,
        # Rows are deleted from the outbox in Redis once the transaction has returned.
        "synchronous_commit": "on",
        # Compiling a query over many partitions takes longer than running it.
        "jit": "off",
    }


@contextmanager
def translated(settings: PostgresSettings, limit: str = "postgres.timeout") -> Iterator[None]:
    """Translate errors of driver, server and network; ``limit`` is the setting with the timeout."""
    try:
        yield
    except FAILURES as error:
        raise translate(error, settings, limit) from error


async def _prepare(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    await connection.set_type_codec(
        "numeric", schema="pg_catalog", encoder=str, decoder=_number, format="text"
    )


async def _leave_as_is(connection: Connection) -> None:
    """Skip the round trip that resets a connection: our own statements change no session state.

    Queries of users may, and are reset after each one (`user_queries.py`).
    """


def _number(text: str) -> int | Decimal:
    """Return a numeric value, as an int if it is whole: a sum of integers is an integer."""
    return int(text) if text.lstrip("-").isdigit() else Decimal(text)
