"""The pool of connections to Postgres."""

from __future__ import annotations

import asyncio
import math
import os
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, get_args
from urllib.parse import unquote, urlencode, urlsplit
from weakref import WeakSet

import asyncpg
from prometheus_client import Gauge

from headwater.backends.postgres.errors import FAILURES, LOST, translate
from headwater.core.credentials import Credentials, Login, credentials_of
from headwater.core.keep_alive import keep_alive
from headwater.core.masking import present
from headwater.core.tls import check_readable
from headwater.errors import ClosedError, ConfigError
from headwater.settings.groups import PostgresSettings
from headwater.settings.schema import SETTINGS

if TYPE_CHECKING:
    _Connection = asyncpg.Connection[asyncpg.Record]
else:
    _Connection = asyncpg.Connection  # generic only for type checkers

T = TypeVar("T")

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

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


class KeptAliveConnection(_Connection):
    """A connection with TCP keep-alive."""

    def __init__(self, protocol: Any, transport: asyncio.BaseTransport, *rest: Any) -> None:
        super().__init__(protocol, transport, *rest)
        keep_alive(transport)


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
        address(settings, url)
        self._settings = settings
        self._parameters = parameters or {}
        self._limit = limit
        self._is_open = True
        self._free = asyncio.Semaphore(settings.pool_size)
        self._connections: dict[Connection, Login | None] = {}
        """All connections, each with its user and password if these may change."""
        self._credentials = credentials_in(settings)
        self._login: Login | None = None
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
                while self._idle:
                    self._drop(self._idle.pop()[0])
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
            if self._credentials is not None:
                self._follow(self._credentials)
            connection = self._taken() or await self._connected()
            try:
                return await work(connection)
            except (asyncio.CancelledError, OSError, *LOST):
                # A statement may still be running.
                connection.terminate()
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

    def _follow(self, credentials: Credentials) -> None:
        """Drop the idle connections of a user or password that was replaced."""
        # Without valid ones, the open connections are still good.
        login = credentials.latest()
        if login != self._login:
            self._login = login
            while self._idle:
                self._drop(self._idle.pop()[0])

    async def _connected(self) -> Connection:
        connection, self._login = await connect(
            self._settings,
            self._credentials,
            command_timeout=self._settings.timeout + _GRACE_SECONDS,
            server_settings={
                **session_settings(self._settings, self._settings.timeout),
                **self._parameters,
            },
            connection_class=KeptAliveConnection,
        )
        self._connections[connection] = self._login
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
        is_replaced = (
            self._credentials is not None and self._connections.get(connection) != self._login
        )
        if is_replaced or connection.is_closed() or connection.is_in_transaction():
            self._drop(connection)
            return
        now = time.monotonic()
        if self._idle and now - self._idle[0][1] > _IDLE_SECONDS:
            self._drop(self._idle.pop(0)[0])
        self._idle.append((connection, now))

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


def address(settings: PostgresSettings, name: str = "postgres.url") -> str:
    """Return the URL from the settings; raise ConfigError if there is none, or not a valid one.

    The driver's errors about hosts and ports would show a part of the password.
    """
    if not settings.url:
        raise ConfigError(
            "Postgres has no address; set HEADWATER_POSTGRES_URL to "
            "postgresql://user:password@host:5432/database"
        )
    try:
        hosts = urlsplit(settings.url).netloc.rpartition("@")[2].split(",")
        ports = [host.rpartition("]")[2].partition(":")[2] for host in hosts]
        is_valid = all(port.isdecimal() or not port for port in ports)
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ConfigError(
            f"{SETTINGS[name].variable} has an invalid host or port; write it as "
            "postgresql://user:password@host:5432/database, with special characters of the "
            "password percent-encoded"
        )
    options = _tls_options(settings)
    mark = "&" if "?" in settings.url else "?"
    return f"{settings.url}{mark}{urlencode(options)}" if options else settings.url


async def connect(
    settings: PostgresSettings, credentials: Credentials | None, **options: Any
) -> tuple[Connection, Login | None]:
    """Open a connection; return it with the user and password that it has from credentials."""
    tls, url = settings.tls, address(settings)
    if tls.ca_file != "system":
        check_readable(tls.ca_file)
    check_readable(tls.cert_file, tls.key_file, tls.crl_file)
    options |= {"timeout": settings.connect_timeout}
    if credentials is None:
        if settings.password:
            options["password"] = settings.password
        return await asyncpg.connect(url, **options), None
    login = await credentials.current()
    try:
        return await _connected_as(login, url, options), login
    except asyncpg.InvalidAuthorizationSpecificationError:
        # It may have been changed on the server before its time.
        credentials.refuse(login)
        if (other := await credentials.current()) == login:
            raise
        return await _connected_as(other, url, options), other


async def _connected_as(login: Login, url: str, options: dict[str, Any]) -> Connection:
    given: dict[str, Any] = {"user": login.user or None, "password": login.password or None}
    connection: Connection = await asyncpg.connect(url, **given, **options)
    return connection


def credentials_in(settings: PostgresSettings) -> Credentials | None:
    """Return the user and password of a server, if they may change."""
    texts = (settings.url, settings.password)

    def read() -> Login:
        url = urlsplit(present(settings.url))
        password = present(settings.password) or unquote(url.password or "")
        return Login(unquote(url.username or ""), password)

    return credentials_of("postgres.credentials", settings.credentials, texts, read)


def _tls_options(settings: PostgresSettings) -> dict[str, str]:
    """Return the options of a URL for encryption; the driver reads their files when it connects."""
    tls = settings.tls
    is_checked = tls.ca_file and "sslmode=" not in settings.url
    trusted = ssl.get_default_verify_paths().cafile if tls.ca_file == "system" else tls.ca_file
    options = {
        "sslmode": tls.mode or ("verify-full" if is_checked else ""),
        "sslrootcert": trusted or "",
        "sslcert": tls.cert_file,
        "sslkey": tls.key_file,
        "sslpassword": tls.key_password,
        "sslcrl": tls.crl_file,
        "ssl_min_protocol_version": tls.min_version,
    }
    return {name: value for name, value in options.items() if value}


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
