"""A connection outside the pool, for short statements with a short timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg

from headwater.backends.postgres.errors import FAILURES, LOST
from headwater.backends.postgres.pool import (
    Connection,
    KeptAliveConnection,
    Postgres,
    address,
    session_settings,
    translated,
)
from headwater.errors import ClosedError
from headwater.settings.groups import PostgresSettings

T = TypeVar("T")

# The caller times out first, then the server, and last the driver if the server does not answer.
_SERVER_GRACE_SECONDS = 1.0
_GRACE_SECONDS = 2.0
_CLOSING_SECONDS = 10.0
# Firewalls and proxies may drop an idle connection without closing it.
_IDLE_SECONDS = 300.0


class DedicatedConnection:
    """One connection, one piece of work at a time.

    Acquiring a connection of the pool costs as much as a short statement, and long queries may
    hold every one of them.
    """

    def __init__(self, postgres: Postgres, settings: PostgresSettings, seconds: float) -> None:
        self._postgres = postgres
        self._settings = settings
        self._seconds = seconds
        self._session = session_settings(settings, seconds + _SERVER_GRACE_SECONDS)
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._free = asyncio.Lock()
        self._idle_since = 0.0
        self._closed = False

    async def run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run the work, again if its connection was lost, until the timeout."""
        async with self._free:
            if self._closed:
                raise ClosedError("this store is closed")
            self._postgres.check_open()
            with translated(self._settings, "record.timeout"):
                async with asyncio.timeout(self._seconds + _GRACE_SECONDS):
                    await self._postgres.prepare()
                    try:
                        return await self._once(work)
                    except LOST:
                        return await self._once(work)

    async def _once(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        connection = await self._take()
        usable = False
        try:
            answer = await work(connection)
            usable = True
        except asyncpg.PostgresError as error:
            usable = not isinstance(error, LOST)
            raise
        finally:
            if usable:
                self._connection = connection
                self._idle_since = asyncio.get_running_loop().time()
            else:
                connection.terminate()
        return answer

    async def _take(self) -> asyncpg.Connection[asyncpg.Record]:
        """Return the connection and detach it: it is put back if it can still be used."""
        connection, self._connection = self._connection, None
        if connection is not None:
            if asyncio.get_running_loop().time() - self._idle_since < _IDLE_SECONDS:
                return connection
            connection.terminate()
        return await asyncpg.connect(
            address(self._settings),
            timeout=self._settings.connect_timeout,
            server_settings=self._session,
            connection_class=KeptAliveConnection,
        )

    async def close(self) -> None:
        """Wait for the running statement and close the connection."""
        async with self._free:
            self._closed = True
            if self._connection is None:
                return
            try:
                await self._connection.close(timeout=_CLOSING_SECONDS)
            except FAILURES:
                # No statement is running, so nothing is lost.
                self._connection.terminate()
