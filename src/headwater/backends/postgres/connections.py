"""Connections to Postgres: direct ones, and those through a pooler of transactions."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeGuard, TypeVar

import asyncpg

from headwater.core.keep_alive import keep_alive
from headwater.core.sql_literals import text

if TYPE_CHECKING:
    _Connection = asyncpg.Connection[asyncpg.Record]
else:
    _Connection = asyncpg.Connection  # generic only for type checkers

T = TypeVar("T")

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


class Primary(NamedTuple):
    """A server that accepted writes when a connection to it was opened."""

    cluster: int
    timeline: int
    server: Any


class DirectConnection(_Connection):
    """A connection with TCP keep-alive that knows its server."""

    primary: Primary | None = None
    """What its server is; None if there are no others to choose from."""

    def __init__(self, protocol: Any, transport: asyncio.BaseTransport, *rest: Any) -> None:
        super().__init__(protocol, transport, *rest)
        keep_alive(transport)
        self.server = transport.get_extra_info("peername")
        self.encryption: ssl.SSLObject | None = transport.get_extra_info("ssl_object")


class TransactionConnection(DirectConnection):
    """A connection through a pooler that uses another session for each transaction.

    Nothing outlasts a transaction then. So every statement is in one, which begins with the
    parameters that a session has elsewhere, and no prepared statement has a name.
    """

    begin_with = ""
    open_another: Callable[[], Awaitable[TransactionConnection]]

    def set_parameters(self, parameters: Mapping[str, str]) -> None:
        """Use parameters of the server in each transaction."""
        # As SET, not as a SELECT: that would take the snapshot before a lock that has to be first.
        self.begin_with = "".join(
            f" SET LOCAL {name} = {value if name == 'search_path' else text(value)};"
            for name, value in parameters.items()
        )

    async def _whole(self, run: Callable[..., Awaitable[T]], *given: Any, **options: Any) -> T:
        if self.is_in_transaction():
            return await run(*given, **options)
        async with self.transaction():
            return await run(*given, **options)

    async def execute(self, query: str, *args: Any, **options: Any) -> str:
        if query.startswith("BEGIN") and not self.is_in_transaction():
            return await super().execute(query + self.begin_with, **options)
        return await self._whole(super().execute, query, *args, **options)

    async def executemany(self, *given: Any, **options: Any) -> None:
        await self._whole(super().executemany, *given, **options)

    async def fetch(self, *given: Any, **options: Any) -> Any:
        return await self._whole(super().fetch, *given, **options)

    async def fetchrow(self, *given: Any, **options: Any) -> Any:
        return await self._whole(super().fetchrow, *given, **options)

    async def fetchval(self, *given: Any, **options: Any) -> Any:
        return await self._whole(super().fetchval, *given, **options)

    async def copy_from_query(self, *given: Any, **options: Any) -> str:
        return await self._whole(super().copy_from_query, *given, **options)

    async def copy_to_table(self, *given: Any, **options: Any) -> str:
        return await self._whole(super().copy_to_table, *given, **options)

    async def copy_records_to_table(self, *given: Any, **options: Any) -> str:
        return await self._whole(super().copy_records_to_table, *given, **options)


def is_pooled(connection: Connection) -> TypeGuard[TransactionConnection]:
    """Return whether nothing of a connection outlasts its transactions."""
    # For the driver's metaclass, every connection is an instance of every class of connections.
    return type(connection) is TransactionConnection


@asynccontextmanager
async def reading(connection: Connection) -> AsyncIterator[None]:
    """Run a block with a user's query in a read-only transaction, and undo what it changed.

    It may have changed settings of the session, or taken locks.
    """
    if is_pooled(connection):
        async with _left_clean(connection):
            yield
        return
    try:
        async with connection.transaction(readonly=True):
            yield
    finally:
        if not connection.is_closed():
            await connection.reset()


@asynccontextmanager
async def _left_clean(connection: Connection) -> AsyncIterator[None]:
    transaction = connection.transaction(readonly=True)
    await transaction.start()
    try:
        # A savepoint, after which the locks of the session can be released also if a query failed.
        async with connection.transaction():
            yield
    finally:
        if not connection.is_closed():
            await connection.execute("SELECT pg_advisory_unlock_all()")
            await transaction.rollback()


@asynccontextmanager
async def another(connection: TransactionConnection) -> AsyncIterator[Connection]:
    """Open a second connection for a block; the first one ends with it."""
    opened = await connection.open_another()
    opened.add_termination_listener(end := lambda _: connection.terminate())
    try:
        yield opened
    finally:
        opened.remove_termination_listener(end)
        opened.terminate()
