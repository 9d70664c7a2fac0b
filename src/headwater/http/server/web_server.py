"""The web server: uvicorn with limits of connections, heads and time, and with Headwater's log."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import httptools
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
    UrlTooLongError,
)
from headwater.http.routing.request_metrics import count_refused
from headwater.http.server.connections import (
    ConnectionDeadline,
    ConnectionGate,
    Phase,
    TimeLimits,
    connection_limit,
)
from headwater.settings.schema import Settings

_LISTEN_BACKLOG = 2048
_TICKS_PER_SECOND = 10

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
        return [each for each in connections if isinstance(each, LimitedProtocol)]

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        # Uvicorn would raise the signal again after a clean stop, and the process would not exit 0.
        yield


def _forward(record: logging.LogRecord, fields: dict[str, Any]) -> None:
    if record.levelno >= logging.ERROR:
        log.error("web server error", **fields)
    else:
        log.warning("web server warning", **fields)
