"""The web server: uvicorn with limits of connections, heads and time, and with Headwater's log."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import resource
import socket
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from enum import Enum, auto
from http import HTTPStatus
from typing import Any

import httptools
import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from headwater.core.logging import forwarded_log, log
from headwater.errors import ConfigError
from headwater.errors.base import RequestError
from headwater.http.app import App
from headwater.http.routing.problems import problem_response
from headwater.http.routing.request_errors import (
    REFUSAL,
    HeadTooLargeError,
    MalformedError,
    RequestTimeoutError,
    TooManyConnectionsError,
    UrlTooLongError,
)
from headwater.http.routing.request_metrics import count_refused
from headwater.settings.groups import HttpSettings
from headwater.settings.schema import Settings

_LISTEN_BACKLOG = 2048
_TICKS_PER_SECOND = 10
# For the backends, so that they can always open files and sockets.
_RESERVED_DESCRIPTORS = 256
_REFUSAL_TICKS = 2

MAX_HEAD_BYTES = 64 << 10
MAX_HEADERS = 100
MAX_URL_BYTES = 16 << 10

# The event loop reads at most this much at once. A read may begin with the end of another request,
# so only what exceeds the limit by a whole read is certain to be too large.
_READ_BYTES = 256 << 10
_DRAINED = 1 << 40


def reserve_port(host: str, port: int) -> socket.socket:
    """Return a socket that keeps a port for processes that share it; it accepts no connections.

    Raise ConfigError if another process listens on the port, even if that one shares it.
    """
    with listen(host, port) as probe:
        address = probe.getsockname()
    reserved = socket.socket(probe.family, probe.type)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reserved.bind(address)
    return reserved


def listen(host: str, port: int, *, is_shared: bool = False) -> socket.socket:
    """Return a listening socket; port 0 takes a free port.

    The kernel distributes connections among the processes that listen on a shared port.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server(
            (host, port), family=family, backlog=_LISTEN_BACKLOG, reuse_port=is_shared
        )
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"port {port} of {host} is in use; stop the process that uses it, or choose a port "
                "with --port or HEADWATER_HTTP_PORT (0: any free port), for a worker --metrics-port"
            ) from error
        raise ConfigError(f"cannot listen on port {port} of {host}: {error.strerror}") from error


def connection_limit() -> int:
    """Return how many connections clients may open: all descriptors except a reserve."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        soft = 1 << 20
    return max(1, soft - min(_RESERVED_DESCRIPTORS, soft // 2))


class ConnectionGate:
    """The number of open connections, in total and of each address."""

    def __init__(self, limit: int, per_address: int = 0) -> None:
        """Set the limits; one address may open half of all if ``per_address`` is 0."""
        self._limit = limit
        self._per_address = per_address or max(1, limit // 2)
        self._open: Counter[str] = Counter()
        self._is_logged = False

    def admit(self, address: str) -> TooManyConnectionsError | None:
        """Count a new connection, or return why it is refused."""
        if self._open.total() >= self._limit:
            refusal = TooManyConnectionsError(self._limit)
        elif self._open[address] >= self._per_address:
            refusal = TooManyConnectionsError(self._per_address, address)
        else:
            self._open[address] += 1
            return None
        if not self._is_logged:
            self._is_logged = True
            log.warning("connections refused: limit reached", detail=str(refusal))
        return refusal

    def release(self, address: str) -> None:
        """Forget a connection that was admitted and has ended."""
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]
        self._is_logged = self._is_logged and self._open.total() > self._limit // 4


class Phase(Enum):
    """What a connection waits for."""

    NEW = auto()
    """The first byte of the first request."""
    IDLE = auto()
    """The first byte of the next request."""
    HEAD = auto()
    """The rest of a request's head."""
    BODY = auto()
    """The rest of a request's body."""
    RUNNING = auto()
    """The application, which has its own deadlines."""
    SENDING = auto()
    """The client, which has not read the response."""
    REFUSED = auto()
    """The client, which may still read why its request was refused."""


class TimeLimits(msgspec.Struct, frozen=True):
    """How many ticks a client may take for each phase."""

    idle: int
    head: int
    transfer: int
    """For a body or a response; each ``rate`` bytes that are transferred add one tick."""
    rate: int

    @classmethod
    def of(cls, settings: HttpSettings) -> TimeLimits:
        return cls(
            idle=math.ceil(settings.idle_timeout),
            head=math.ceil(settings.head_timeout),
            transfer=math.ceil(settings.transfer_timeout),
            rate=settings.min_transfer_rate,
        )

    def of_phase(self, phase: Phase) -> float:
        limits = {
            Phase.NEW: self.head,
            Phase.HEAD: self.head,
            Phase.IDLE: self.idle,
            Phase.RUNNING: math.inf,
            Phase.REFUSED: _REFUSAL_TICKS,
        }
        return limits.get(phase, self.transfer)


class ConnectionDeadline:
    """The tick by which a connection must have made progress.

    Time is counted in ticks of the server, about one a second, and not by a clock: while the event
    loop is blocked, no client can make progress.
    """

    __slots__ = ("_limits", "_phase", "_request", "_tick", "_transferred")

    def __init__(self, limits: TimeLimits) -> None:
        self._limits = limits
        self._phase: Phase | None = None
        self._request: object = None
        self._tick = 0.0
        self._transferred = 0

    def has_passed(self, tick: int, phase: Phase, request: object, transferred: int) -> bool:
        """Return whether the client has taken too long for this phase of this request."""
        limits = self._limits
        if phase is not self._phase or request is not self._request:
            self._phase, self._request = phase, request
            self._tick = tick + limits.of_phase(phase)
        else:
            progress = max(0, transferred - self._transferred)
            longest = tick + limits.of_phase(phase)
            self._tick = min(longest, self._tick + progress / limits.rate)
        self._transferred = transferred
        return tick >= self._tick


class LimitedProtocol(HttpToolsProtocol):
    """A connection of a client, closed as soon as it exceeds a limit."""

    gate: ConnectionGate
    time_limits: TimeLimits

    _address: str | None = None
    _is_refused = False
    _unfinished = 0
    """Bytes since the beginning of a head, or since the last byte of a body."""
    _body_bytes = 0
    _drains = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._deadline = ConnectionDeadline(self.time_limits)
        address = self.client[0] if self.client else ""
        refusal = self.gate.admit(address)
        if refusal is None:
            self._address = address
            return
        self.connections.discard(self)
        self._refuse(refusal)
        transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._address is not None:
            self.gate.release(self._address)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._unfinished += len(data)
        body_bytes = self._body_bytes
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # no other protocol is supported, so the request is answered like any other
        except httptools.HttpParserCallbackError as error:
            self._refuse_invalid(error.__context__)
            return
        except httptools.HttpParserError as error:
            self._refuse_invalid(error)
            return
        if self.scope is not None and "method" in self.scope and not self.cycle.more_body:
            self._unfinished = 0  # all requests that have begun were received completely
        elif self._body_bytes != body_bytes:
            self._unfinished = len(data)
        elif self._unfinished > MAX_HEAD_BYTES + _READ_BYTES:
            self._refuse_invalid(self._head_error())

    def on_headers_complete(self) -> None:
        if (
            len(self.headers) > MAX_HEADERS
            or len(self.url) > MAX_URL_BYTES
            or (self._unfinished > MAX_HEAD_BYTES and self._head_bytes() > MAX_HEAD_BYTES)
        ):
            raise self._head_error()
        super().on_headers_complete()
        # The parser reports trailers as headers, which must not change those of the request.
        self.headers = []

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_response_complete(self) -> None:
        # As in uvicorn, but without a timer: the sweep closes idle connections.
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())

    def resume_writing(self) -> None:
        self._drains += 1
        super().resume_writing()

    def shutdown(self) -> None:
        if self._is_refused:
            self.transport.close()
        else:
            super().shutdown()

    def check_deadline(self, tick: int) -> None:
        """Disconnect a client that takes too long."""
        phase = self._phase()
        if not self._deadline.has_passed(tick, phase, self.scope, self._transferred(phase)):
            return
        if phase in (Phase.NEW, Phase.IDLE):
            self.transport.close()
            return
        if phase is Phase.REFUSED:
            self.transport.abort()
            return
        log.warning("slow client disconnected", address=self._address, phase=phase.name.lower())
        if phase is Phase.SENDING:
            self.transport.abort()
        elif phase is Phase.HEAD:
            self._refuse(RequestTimeoutError("head", "http.head_timeout"))
        else:
            self._refuse(RequestTimeoutError("body", "http.transfer_timeout"))

    def _phase(self) -> Phase:
        if self._is_refused:
            return Phase.REFUSED
        if self.transport.get_write_buffer_size():
            return Phase.SENDING
        if self.scope is None:
            return Phase.NEW
        is_answered = self.cycle is None or self.cycle.response_complete
        if not is_answered:
            is_waiting = self.cycle.more_body and not self.flow.read_paused and not self.pipeline
            return Phase.BODY if is_waiting else Phase.RUNNING
        return Phase.IDLE if "method" in self.scope else Phase.HEAD

    def _transferred(self, phase: Phase) -> int:
        """Return a number that grows with each byte that the client has sent or read."""
        if phase is Phase.SENDING:
            return self._drains * _DRAINED - self.transport.get_write_buffer_size()
        return self._body_bytes if phase is Phase.BODY else 0

    def _head_bytes(self) -> int:
        fields = sum(len(name) + len(value) + len(": \r\n") for name, value in self.headers)
        return len(self.url) + fields

    def _head_error(self) -> RequestError:
        if self.scope is not None and len(self.url) > MAX_URL_BYTES:
            return UrlTooLongError(MAX_URL_BYTES)
        return HeadTooLargeError(MAX_HEADERS, MAX_HEAD_BYTES)

    def _refuse_invalid(self, error: BaseException | None) -> None:
        if not isinstance(error, RequestError):
            error = MalformedError(f"the request is not valid HTTP/1.1: {error}")
        log.warning("request refused", address=self._address, detail=str(error))
        self._refuse(error)

    def _refuse(self, error: RequestError) -> None:
        """Answer with a problem, unless the client expects another answer, and disconnect."""
        self._is_refused = True
        cycle = self.cycle
        is_running = cycle is not None and not cycle.response_complete
        if is_running:
            cycle.scope[REFUSAL] = error  # type: ignore[literal-required]
            cycle.disconnected = True
            cycle.message_event.set()
        response = problem_response(error)
        if not is_running:
            count_refused(response.status_code)
        is_same = is_running and cycle.scope is self.scope and not self.pipeline
        if not is_running or (is_same and not cycle.response_started):
            headers = {"connection": "close"} | dict(response.headers)
            lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
            status = HTTPStatus(response.status_code)
            head = f"HTTP/1.1 {status.value} {status.phrase}\r\n{''.join(lines)}\r\n"
            self.transport.write(head.encode() + bytes(response.body))
        # Closed while data arrives, the kernel would reset the connection before the client has
        # read the answer.
        self.flow.pause_reading()
        self.transport.write_eof()


class WebServer(uvicorn.Server):
    """Uvicorn without its signal handlers, and with Headwater's log."""

    def __init__(
        self, app: App, settings: Settings, listener: socket.socket, announce: Callable[[], None]
    ) -> None:
        gate = ConnectionGate(connection_limit(), settings.http.max_connections_per_address)
        limits = TimeLimits.of(settings.http)
        super().__init__(
            uvicorn.Config(
                app,
                loop="none",
                http=type("OurProtocol", (LimitedProtocol,), {"gate": gate, "time_limits": limits}),
                ws="none",
                lifespan="off",
                access_log=False,
                log_config=None,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=math.ceil(settings.worker.drain_timeout),
            )
        )
        self._private = app.private
        self._end_streams = app.end_streams
        self._listener = listener
        self._announce = announce
        self._seconds = 0

    async def run_until_stopped(self) -> None:
        with forwarded_log("uvicorn.error", _forward, private=self._private):
            try:
                await self.serve([self._listener])
            finally:
                for connection in self._connections():
                    connection.transport.abort()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._end_streams()
        await super().shutdown(sockets)

    async def on_tick(self, counter: int) -> bool:
        if counter % _TICKS_PER_SECOND == 0:
            self._seconds += 1
            for connection in self._connections():
                connection.check_deadline(self._seconds)
        return await super().on_tick(counter)

    def _connections(self) -> list[LimitedProtocol]:
        connections = self.server_state.connections
        return [ours for ours in connections if isinstance(ours, LimitedProtocol)]

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        # Uvicorn would raise the signal again after a clean stop, and the process would not exit 0.
        yield


def _forward(record: logging.LogRecord, fields: dict[str, Any]) -> None:
    if record.levelno >= logging.ERROR:
        log.error("web server error", **fields)
    else:
        log.warning("web server warning", **fields)
