"""One connection to one server: many callers share it, and nothing is ever sent twice.

The commands of one turn of the event loop leave in few writes, and each caller waits for its own
answers. When the connection breaks, all of them learn that the outcome of what they sent
is unknown; only they know whether it may be sent again.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs, unquote, urlsplit

import hiredis

from headwater.errors import BackendError, BackendUnavailableError, ConfigError

Command = Sequence[Any]
Push = Callable[[Any], None]

_NOTHING = object()
_PORT = 6379
_LOOKS_PER_TIMEOUT = 4
_LARGE = 4_096
_MESSAGE = b"message"


class LostError(BackendUnavailableError):
    """The connection broke before the answer came; whether the command was run is unknown."""


class Address(NamedTuple):
    """Where a server listens, and how one introduces oneself."""

    host: str
    port: int
    path: str = ""
    username: str = ""
    password: str = ""
    database: int = 0
    secure: bool = False

    @classmethod
    def parse(cls, url: str) -> Self:
        """Reads ``redis://user:password@host:port/0``, ``rediss://…`` or ``unix:///path?db=0``."""
        parts = urlsplit(url)
        if parts.scheme not in ("redis", "rediss", "valkey", "valkeys", "unix"):
            raise ConfigError(
                "redis.url must begin with redis://, rediss:// (encrypted) or unix://, "
                "for example redis://localhost:6379/0"
            )
        try:
            query = parse_qs(parts.query).get("db", ["0"])[0]
            local = parts.scheme == "unix"
            return cls(
                host=parts.hostname or "localhost",
                port=parts.port or _PORT,
                path=unquote(parts.path) if local else "",
                username=unquote(parts.username or ""),
                password=unquote(parts.password or ""),
                database=int(query if local else parts.path.strip("/") or query),
                secure=parts.scheme in ("rediss", "valkeys"),
            )
        except ValueError as error:
            raise ConfigError(f"redis.url cannot be read: {error}") from error

    def at(self, host: str, port: int) -> Self:
        """Another server of the same cluster."""
        return self._replace(host=host, port=port, path="")

    def __str__(self) -> str:
        return self.path or f"{self.host}:{self.port}"


class _Ticket:
    """The answers one caller waits for."""

    __slots__ = ("future", "missing", "replies", "sent_at")

    def __init__(self, future: asyncio.Future[list[Any]], missing: int) -> None:
        self.future = future
        self.missing = missing
        self.replies: list[Any] = []
        self.sent_at = time.monotonic()


class Wire(asyncio.Protocol):
    """A connection whose answers come in the order of its commands."""

    def __init__(self, address: Address, timeout: float, on_push: Push | None = None) -> None:
        self._address = address
        self._timeout = timeout
        self._on_push = on_push
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        self._tickets: deque[_Ticket] = deque()
        self._unsent: list[bytes] = []
        self._in_turn = False
        self._watch: asyncio.TimerHandle | None = None
        self._heard_at = 0.0
        self.transport: asyncio.Transport = asyncio.Transport()
        self._problem = "was closed"
        self.alive = True
        """Whether commands may be sent."""
        self.closed = self._loop.create_future()
        """Done when the connection has ended."""

    async def calls(self, commands: Sequence[Command]) -> list[Any]:
        """Sends commands in one piece; gives their answers, of which any may be an error."""
        if not self.alive:
            raise self._lost()
        packed = _packed(commands)
        ticket = _Ticket(self._loop.create_future(), len(commands))
        self._tickets.append(ticket)
        self._send(packed)
        if self._watch is None:
            self._look_later()
        return await ticket.future

    def _send(self, packed: list[bytes]) -> None:
        self._unsent += packed
        # The first of a turn leaves at once, and so does what is large: the server is to work
        # while we prepare the next. The others of the turn leave together.
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
        # Otherwise uvloop keeps what is written until nothing else is ready to run.
        self.transport.set_write_buffer_limits(high=0)

    def data_received(self, data: bytes) -> None:
        self._heard_at = time.monotonic()
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not _NOTHING:
                self._answer(reply)
        except hiredis.ProtocolError as error:
            self._abort(f"sent what is not its protocol ({error})")

    def _answer(self, reply: Any) -> None:
        if self._on_push is not None and isinstance(reply, list) and reply[:1] == [_MESSAGE]:
            self._on_push(reply)
            return
        if not self._tickets:
            self._abort(f"said what nobody asked ({reply!r})")
            return
        ticket = self._tickets[0]
        ticket.replies.append(reply)
        ticket.missing -= 1
        if not ticket.missing:
            self._tickets.popleft()
            # Who gave up waiting is not told.
            if not ticket.future.done():
                ticket.future.set_result(ticket.replies)

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None:
            self._problem = f"was lost ({error})"
        self.alive = False
        if self._watch is not None:
            self._watch.cancel()
        tickets, self._tickets = self._tickets, deque()
        for ticket in tickets:
            if not ticket.future.done():
                ticket.future.set_exception(self._lost())
        if not self.closed.done():
            self.closed.set_result(None)

    def _lost(self) -> LostError:
        return LostError(f"the connection to Redis at {self._address} {self._problem}")

    def _look_later(self) -> None:
        self._watch = self._loop.call_later(self._timeout / _LOOKS_PER_TIMEOUT, self._look)

    def _look(self) -> None:
        """One look at the oldest command now and then, instead of a timer for each.

        A large answer may take longer, as long as more of it keeps coming.
        """
        self._watch = None
        if not self._tickets:
            return
        silent_since = max(self._tickets[0].sent_at, self._heard_at)
        if time.monotonic() - silent_since > self._timeout:
            self._abort(f"gave no answer within {self._timeout:g} s")
        else:
            self._look_later()

    def _abort(self, problem: str) -> None:
        self.alive = False
        self._problem = problem
        self.transport.abort()

    def close(self) -> None:
        self._abort("was closed")


def _packed(commands: Sequence[Command]) -> list[bytes]:
    return [hiredis.pack_command(tuple(command)) for command in commands]


async def open_wire(
    address: Address, patience: float, connect_timeout: float, on_push: Push | None = None
) -> Wire:
    """Connects and introduces itself; what is wrong is told with its remedy."""
    loop = asyncio.get_running_loop()

    def make() -> Wire:
        return Wire(address, patience, on_push)

    try:
        async with asyncio.timeout(connect_timeout):
            if address.path:
                _, wire = await loop.create_unix_connection(make, address.path)
            else:
                secure = ssl.create_default_context() if address.secure else None
                _, wire = await loop.create_connection(make, address.host, address.port, ssl=secure)
            await _introduce(wire, address)
    except TimeoutError as error:
        raise BackendUnavailableError(
            f"Redis at {address} could not be reached within {connect_timeout:g} s; "
            "see that it runs and that redis.url is right"
        ) from error
    except OSError as error:
        raise BackendUnavailableError(
            f"Redis at {address} could not be reached: {error.strerror or error}; "
            "see that it runs and that redis.url is right"
        ) from error
    return wire


async def _introduce(wire: Wire, address: Address) -> None:
    commands: list[Command] = []
    if address.password:
        commands.append(["AUTH", *filter(None, [address.username]), address.password])
    if address.database:
        commands.append(["SELECT", address.database])
    commands.append(["CLIENT", "SETNAME", "headwater"])
    with ExitStack() as undo:
        undo.callback(wire.close)
        for reply in await wire.calls(commands):
            if isinstance(reply, hiredis.ReplyError):
                raise BackendError(f"Redis at {address} refuses us: {reply}; see redis.url")
        undo.pop_all()
