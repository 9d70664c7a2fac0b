"""A connection to one server, shared by many callers.

The commands of one turn of the event loop leave in few writes, and each caller waits for its
replies. Nothing is sent twice: when the connection breaks, the outcome of the commands is unknown,
and only their callers know whether they may be sent again.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import hiredis

from headwater.backends.redis.address import Address
from headwater.backends.redis.errors import LostError, is_withheld, with_remedy
from headwater.core.credentials import Credentials, Login
from headwater.core.keep_alive import keep_alive
from headwater.core.tls import client_context, explained
from headwater.errors import BackendUnavailableError
from headwater.settings.servers import TlsSettings

Command = Sequence[Any]
Push = Callable[[Any], None]

_NOTHING = object()
_LARGE = 4_096
_MESSAGE = b"message"
_NO_TLS = TlsSettings()


class _PendingReplies:
    """The replies that one caller waits for."""

    __slots__ = ("future", "missing", "replies", "sent_at")

    def __init__(self, future: asyncio.Future[list[Any]], missing: int) -> None:
        self.future = future
        self.missing = missing
        self.replies: list[Any] = []
        self.sent_at = time.monotonic()


class RedisConnection(asyncio.Protocol):
    """A connection on which replies come in the order of the commands."""

    def __init__(self, address: Address, timeout: float, on_push: Push | None = None) -> None:
        self.address = address
        self._timeout = timeout
        self._on_push = on_push
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        self._pending: deque[_PendingReplies] = deque()
        self._unsent: list[bytes] = []
        self._in_turn = False
        self._watch: asyncio.TimerHandle | None = None
        self._heard_at = 0.0
        self.transport: asyncio.Transport = asyncio.Transport()
        self._problem = "was closed"
        self.alive = True
        """Whether commands may be sent."""
        self.login = Login()
        """The user and the password that the connection was authenticated with."""
        self.lacks_scripts = False
        """Whether the server does not allow to load scripts before they are called."""
        self.scripts: set[Any] = set()
        """Those that were called there since."""
        self.is_retired = False
        """Whether it was closed to be replaced, and not because of a failure."""
        self.closed = self._loop.create_future()
        """Done when the connection has ended."""

    async def calls(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one write; return their replies, each of which may be an error."""
        if not self.alive:
            raise self._lost()
        packed = [hiredis.pack_command(tuple(command)) for command in commands]
        waiting = _PendingReplies(self._loop.create_future(), len(commands))
        self._pending.append(waiting)
        self._send(packed)
        if self._watch is None:
            self._watch = self._loop.call_later(self._timeout, self._check)
        return await waiting.future

    async def log_in(self, login: Login, commands: Sequence[Command] = ()) -> list[Any]:
        """Authenticate, then send commands; return all replies, each of which may be an error.

        Commands of others that are on their way are not disturbed. Refused, the former user stays.
        """
        user, password = login
        auth: list[Command] = [["AUTH", *filter(None, [user]), password]] if any(login) else []
        replies = await self.calls([*auth, *commands])
        if not auth or not isinstance(replies[0], hiredis.ReplyError):
            self.login = login
        return replies

    def _send(self, packed: list[bytes]) -> None:
        self._unsent += packed
        # The first commands of a turn leave at once, and so do large ones: the server can work
        # while the next are prepared. The others of the turn leave together.
        if not self._in_turn:
            self._in_turn = True
            self._loop.call_soon(self._end_turn)
            self._flush()
        elif sum(map(len, packed)) > _LARGE:
            self._flush()

    def _end_turn(self) -> None:
        self._in_turn = False
        self._flush()

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent and self.alive:
            self.transport.write(b"".join(unsent))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        # Otherwise uvloop delays writes until no other callback is ready to run.
        self.transport.set_write_buffer_limits(high=0)
        keep_alive(transport)

    def data_received(self, data: bytes) -> None:
        self._heard_at = time.monotonic()
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not _NOTHING:
                self._answer(reply)
        except hiredis.ProtocolError as error:
            self._abort(f"sent an invalid reply ({error})")

    def _answer(self, reply: Any) -> None:
        if self._on_push is not None and isinstance(reply, list) and reply[:1] == [_MESSAGE]:
            self._on_push(reply)
            return
        if not self._pending:
            # A server without room for a client says so before it is asked.
            said = with_remedy(str(reply)) if isinstance(reply, hiredis.ReplyError) else repr(reply)
            self._abort(f"sent an unexpected reply ({said})")
            return
        waiting = self._pending[0]
        waiting.replies.append(reply)
        waiting.missing -= 1
        if not waiting.missing:
            self._pending.popleft()
            # The future is done if its caller was cancelled.
            if not waiting.future.done():
                waiting.future.set_result(waiting.replies)

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None:
            meaning = explained(error, "redis.tls")
            self._problem = f"was lost: {'; '.join(meaning)}" if meaning else f"was lost ({error})"
        self.alive = False
        if self._watch is not None:
            self._watch.cancel()
        if not self.closed.done():
            self.closed.set_result(None)
        pending, self._pending = self._pending, deque()
        for waiting in pending:
            if not waiting.future.done():
                waiting.future.set_exception(self._lost())

    def _lost(self) -> LostError:
        return LostError(f"the connection to Redis at {self.address} {self._problem}")

    def _check(self) -> None:
        """Check the oldest command when it may be late, instead of one timer per command.

        A large reply may take longer, as long as more of it keeps coming.
        """
        self._watch = None
        if not self._pending:
            return
        silent_since = max(self._pending[0].sent_at, self._heard_at)
        seconds_left = silent_since + self._timeout - time.monotonic()
        if seconds_left > 0:
            self._watch = self._loop.call_later(seconds_left, self._check)
        else:
            self._abort(
                f"gave no reply within {self._timeout:g} s; check its load and the network, or "
                "raise redis.timeout"
            )

    def _abort(self, problem: str) -> None:
        self.alive = False
        self._problem = problem
        self.transport.abort()

    def close(self) -> None:
        self._abort("was closed")

    def retire(self) -> None:
        """Close the connection because another one has to be used."""
        self.is_retired = True
        self.close()


async def open_connection(
    address: Address,
    reply_timeout: float,
    connect_timeout: float,
    on_push: Push | None = None,
    tls: TlsSettings = _NO_TLS,
    credentials: Credentials | None = None,
) -> RedisConnection:
    """Connect and authenticate; errors name the remedy."""
    loop = asyncio.get_running_loop()
    login = Login(address.username, address.password)
    if credentials is not None:
        login = await credentials.current()

    def make() -> RedisConnection:
        return RedisConnection(address, reply_timeout, on_push)

    try:
        async with asyncio.timeout(connect_timeout):
            if address.path:
                _, connection = await loop.create_unix_connection(make, address.path)
            elif address.secure:
                files = (tls.ca_file, tls.cert_file, tls.key_file)
                _, connection = await loop.create_connection(
                    make,
                    address.host,
                    address.port,
                    ssl=client_context(*files, verify=tls.verify),
                    server_hostname=tls.server_name or None,
                )
            else:
                _, connection = await loop.create_connection(make, address.host, address.port)
            await _authenticate(connection, address, login, credentials)
    except OSError as error:
        raise _unreachable(error, address, connect_timeout) from error
    return connection


def _unreachable(error: OSError, address: Address, seconds: float) -> BackendUnavailableError:
    runs = "is running and speaks TLS on this port" if address.secure else "is running"
    remedy = f"check that it {runs} and that redis.url is correct"
    if isinstance(error, TimeoutError):
        problem = f" within {seconds:g} s"
    elif meaning := explained(error, "redis.tls"):
        problem, remedy = f": {meaning[0]}", meaning[1]
    else:
        problem = f": {error.strerror or error}"
    return BackendUnavailableError(f"Redis at {address} could not be reached{problem}; {remedy}")


async def _authenticate(
    connection: RedisConnection, address: Address, login: Login, credentials: Credentials | None
) -> None:
    commands: list[Command] = [["SELECT", address.database]] if address.database else []
    commands.append(["CLIENT", "SETNAME", "headwater"])
    with ExitStack() as undo:
        undo.callback(connection.close)
        reply, *replies = await connection.log_in(login, commands)
        if isinstance(reply, hiredis.ReplyError) and credentials is not None:
            # It may have been changed on the server before its time.
            credentials.refuse(login)
            if (other := await credentials.current()) != login:
                reply, *replies = await connection.log_in(other, commands)
        # The name of the connection is for operators, and not every server allows it.
        *needed, named = reply, *replies
        if isinstance(named, hiredis.ReplyError) and not is_withheld(str(named)):
            needed.append(named)
        for each in needed:
            if isinstance(each, hiredis.ReplyError):
                # No command can run there, so the server is unavailable to all of them.
                problem = with_remedy(str(each), "check redis.url")
                raise BackendUnavailableError(
                    f"Redis at {address} refused the connection: {problem}"
                )
        undo.pop_all()
