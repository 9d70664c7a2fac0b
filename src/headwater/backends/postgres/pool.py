"""The pool of connections to Postgres."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from decimal import Decimal
from functools import partial
from typing import Any, Literal, TypeVar, get_args
from urllib.parse import unquote, urlsplit
from weakref import WeakSet

import asyncpg
from prometheus_client import Gauge

from headwater.backends.postgres.addresses import addresses, session_settings
from headwater.backends.postgres.connections import (
    Connection,
    DirectConnection,
    Primary,
    TransactionConnection,
    is_pooled,
)
from headwater.backends.postgres.errors import FAILURES, LOST, REFUSED, translate
from headwater.backends.postgres.primaries import (
    accept,
    ask_primary,
    latest_primary,
    servers_with_one_primary,
)
from headwater.core.credentials import Credentials, Login, credentials_of
from headwater.core.tls import check_readable
from headwater.errors import ClosedError
from headwater.settings.servers import PostgresSettings

T = TypeVar("T")

# The server cancels a statement that takes too long; the driver only if the server does not.
_GRACE_SECONDS = 5.0
_CLOSING_SECONDS = 10.0
# Firewalls and proxies may drop an idle connection without closing it.
_IDLE_SECONDS = 300.0

ConnectionState = Literal["busy", "idle"]
CONNECTIONS = Gauge(
    "headwater_postgres_connections",
    "Connections of this process to Postgres; `state` is `busy` or `idle`; see "
    "`postgres.pool_size`.",
    ["state"],
)
WAITING = Gauge(
    "headwater_postgres_waiting",
    "Statements of this process that wait for a connection to Postgres.",
)
# A process has one for each event loop.
_POOLS: WeakSet[Postgres] = WeakSet()


def _count(state: ConnectionState) -> int:
    return sum(pool.count(state) for pool in list(_POOLS))


for _state in get_args(ConnectionState):
    CONNECTIONS.labels(_state).set_function(partial(_count, _state))


class Postgres:
    """The connections of one process; errors of the driver are translated here.

    The driver's own pool starts a task for each use of a connection, which costs more than a short
    statement.
    """

    def __init__(
        self,
        settings: PostgresSettings,
        parameters: Mapping[str, str] | None = None,
        limit: str = "postgres.timeout",
        url: str = "postgres.url",
    ) -> None:
        """Use these parameters of the server in each session, besides our own.

        The first statement connects, since a process may never read history. ``limit`` and ``url``
        name the settings that the timeout and the address are from.
        """
        self._url = url
        addresses(settings, url)  # raises if one is invalid
        self._settings = settings
        self._parameters = parameters or {}
        self._limit = limit
        self._is_open = True
        self._free = asyncio.Semaphore(settings.pool_size)
        self._connections: dict[Connection, tuple[Login | None, Primary | None]] = {}
        """All connections, each with its login and its server if these may change."""
        self._credentials = credentials_in(settings)
        self._login: Login | None = None
        self._servers = servers_with_one_primary(settings)
        self._primary: Primary | None = None
        self._may_change = self._credentials is not None or bool(self._servers)
        self._idle: list[tuple[Connection, float]] = []
        """Connections that are not in use, and since when; the last one is used first."""
        self._preparation: Callable[[], Awaitable[None]] | None = None
        self._preparing = asyncio.Lock()
        self._pid = os.getpid()
        _POOLS.add(self)

    def count(self, state: ConnectionState) -> int:
        """Return the number of connections in a state."""
        idle = len(self._idle)
        return idle if state == "idle" else len(self._connections) - idle

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
        with translated(self._settings, self._limit, self._url):
            try:
                return await self._once(work)
            except LOST:
                # The event that ended this connection has most likely ended the others too.
                self._drop_idle()
                return await self._once(work)

    async def _once(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        self.check_open()
        if self._free.locked():
            with WAITING.track_inprogress():
                async with asyncio.timeout(self._settings.timeout):
                    await self._free.acquire()
        else:
            await self._free.acquire()
        try:
            self.check_open()  # it may have been closed meanwhile
            if self._may_change:
                self._follow()
            connection = self._taken() or await self._connected()
            try:
                return await work(connection)
            except (asyncio.CancelledError, OSError, *LOST) as error:
                # A statement may still be running.
                connection.terminate()
                if isinstance(error, TimeoutError):
                    # A server that does not even end a statement in time may be gone.
                    self._drop_idle()
                raise
            finally:
                self._put_back(connection)
        finally:
            self._free.release()

    def _taken(self) -> Connection | None:
        """Return the connection that was used last; None if none is idle."""
        while self._idle:
            connection, since = self._idle.pop()
            if not connection.is_closed() and time.monotonic() - since < _IDLE_SECONDS:
                return connection
            self._drop(connection)
        return None

    def _follow(self) -> None:
        """Drop the idle connections of a login or a primary that was replaced."""
        # Without a valid login, the open connections are still good.
        login = self._credentials.latest() if self._credentials is not None else None
        primary = latest_primary(self._servers)
        if (login, primary) != (self._login, self._primary):
            self._login, self._primary = login, primary
            self._drop_idle()

    async def _connected(self) -> Connection:
        timeout = self._settings.timeout
        connection, self._login = await connect(
            self._settings,
            self._credentials,
            {**session_settings(self._settings, timeout), **self._parameters},
            command_timeout=timeout + min(_GRACE_SECONDS, timeout / 2),
        )
        if connection.primary != self._primary:
            self._primary = connection.primary
            self._drop_idle()
        self._connections[connection] = (self._login, self._primary)
        with ExitStack() as undo:
            undo.callback(self._drop, connection)
            await connection.set_type_codec(
                "numeric", schema="pg_catalog", encoder=str, decoder=_number, format="text"
            )
            undo.pop_all()
        return connection

    def _put_back(self, connection: Connection) -> None:
        """Keep a connection for the next use; it is as new.

        Our own statements change no session state. Queries of users may, and are reset after each
        one (`store.py`).
        """
        is_replaced = self._connections.get(connection) != (self._login, self._primary)
        if is_replaced or connection.is_closed() or connection.is_in_transaction():
            self._drop(connection)
            return
        now = time.monotonic()
        if self._idle and now - self._idle[0][1] > _IDLE_SECONDS:
            self._drop(self._idle.pop(0)[0])
        self._idle.append((connection, now))

    def _drop_idle(self) -> None:
        while self._idle:
            self._drop(self._idle.pop()[0])

    def _drop(self, connection: Connection) -> None:
        connection.terminate()
        self._connections.pop(connection, None)

    def check_open(self) -> None:
        """Raise ClosedError if the store is closed or was opened in another process."""
        if self._pid != os.getpid():
            raise ClosedError(
                "this store was opened before a fork and cannot be used in the child process; "
                "make a FeatureStore there"
            )
        if not self._is_open:
            raise ClosedError("this store is closed")

    async def close(self) -> None:
        """Close the connections, waiting for running statements for a limited time."""
        if not self._is_open:
            return
        self._is_open = False
        if self._credentials is not None:
            await self._credentials.close()
        with suppress(*FAILURES):
            async with asyncio.timeout(_CLOSING_SECONDS):
                for _ in range(self._settings.pool_size):
                    await self._free.acquire()
                for connection, _ in self._idle:
                    await connection.close()
        for connection in [*self._connections]:
            self._drop(connection)


async def connect(
    settings: PostgresSettings,
    credentials: Credentials | None,
    parameters: Mapping[str, str],
    **options: Any,
) -> tuple[DirectConnection, Login | None]:
    """Open a connection; return it with the user and password that it has from credentials.

    The parameters of the server hold for all that it is used for.
    """
    tls = settings.tls
    if tls.ca_file != "system":
        check_readable(tls.ca_file)
    check_readable(tls.cert_file, tls.key_file, tls.crl_file)
    given = {"timeout": settings.connect_timeout, **options}
    if settings.pooler == "transaction":
        given |= {"connection_class": TransactionConnection, "statement_cache_size": 0}
    else:
        given |= {"connection_class": DirectConnection, "server_settings": dict(parameters)}
    connection, login = await _logged_in(settings, credentials, given)
    if is_pooled(connection):
        connection.set_parameters(parameters)

        async def open_another() -> TransactionConnection:
            opened, _ = await connect(settings, credentials, parameters, **options)
            assert is_pooled(opened)
            return opened

        connection.open_another = open_another
    return connection, login


async def _logged_in(
    settings: PostgresSettings,
    credentials: Credentials | None,
    options: Mapping[str, Any],
) -> tuple[DirectConnection, Login | None]:
    if credentials is None:
        password = {"password": settings.password} if settings.password else {}
        return await _first_of(settings, {**options, **password}), None
    login = await credentials.current()
    try:
        return await _connected_as(login, settings, options), login
    except asyncpg.InvalidAuthorizationSpecificationError:
        # It may have been changed on the server before its time.
        credentials.refuse(login)
        if (other := await credentials.current()) == login:
            raise
        return await _connected_as(other, settings, options), other


async def _connected_as(
    login: Login, settings: PostgresSettings, options: Mapping[str, Any]
) -> DirectConnection:
    given: dict[str, Any] = {"user": login.user or None, "password": login.password or None}
    return await _first_of(settings, {**given, **options})


async def _first_of(settings: PostgresSettings, options: Mapping[str, Any]) -> DirectConnection:
    """Connect to all servers at once, and return the first connection that can be used.

    A server that is gone may not answer at all, and the others do not wait for it.
    """
    urls = addresses(settings)
    servers = servers_with_one_primary(settings)
    attempts: set[asyncio.Future[DirectConnection]] = {
        asyncio.ensure_future(_opened(url, options, is_asked=bool(servers))) for url in urls
    }
    errors: list[Exception] = []
    try:
        while attempts:
            done, _ = await asyncio.wait(attempts, return_when=asyncio.FIRST_COMPLETED)
            attempt = done.pop()
            attempts.remove(attempt)
            try:
                connection = await attempt
                if servers:
                    accept(connection, servers)
                return connection
            except asyncpg.ProtocolViolationError as error:
                # What PgBouncer reports where a server says that it refuses the password.
                is_refusal = "authentication failed" in str(error)
                errors.append(asyncpg.InvalidPasswordError(str(error)) if is_refusal else error)
            except FAILURES as error:
                errors.append(error)
    finally:
        for attempt in attempts:
            attempt.add_done_callback(_discard)
            attempt.cancel()
    raise next((error for error in errors if isinstance(error, REFUSED)), errors[-1])


async def _opened(url: str, options: Mapping[str, Any], *, is_asked: bool) -> DirectConnection:
    connection: DirectConnection = await asyncpg.connect(url, **options)
    if is_asked:
        with ExitStack() as undo:
            undo.callback(connection.terminate)
            await ask_primary(connection, options["timeout"])
            undo.pop_all()
    return connection


def _discard(attempt: asyncio.Future[DirectConnection]) -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().terminate()


def credentials_in(settings: PostgresSettings) -> Credentials | None:
    """Return the user and password of a server, if they may change."""
    texts = (settings.url, settings.password)

    def read(text: str, password: str) -> Login:
        url = urlsplit(text)
        return Login(unquote(url.username or ""), password or unquote(url.password or ""))

    return credentials_of("postgres.credentials", settings.credentials, texts, read)


@contextmanager
def translated(
    settings: PostgresSettings, limit: str = "postgres.timeout", url: str = "postgres.url"
) -> Iterator[None]:
    """Translate errors of driver, server and network, which name the settings to change."""
    try:
        yield
    except FAILURES as error:
        raise translate(error, settings, limit, url) from error


def _number(text: str) -> int | Decimal:
    """Return a numeric value, as an int if it is whole: a sum of integers is an integer."""
    return int(text) if text.lstrip("-").isdigit() else Decimal(text)
