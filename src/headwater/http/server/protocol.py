"""HTTP/1.1 with limits: of connections, of the size of a request's head, and of time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from http import HTTPStatus

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from headwater.access.errors import RequestError
from headwater.core.logging import log
from headwater.http.routing.problems import problem_response
from headwater.http.routing.request_errors import (
    REFUSAL,
    HeadTooLargeError,
    MalformedError,
    RequestTimeoutError,
    UrlTooLongError,
)
from headwater.http.routing.request_metrics import count_refused
from headwater.http.server.connections import ConnectionGate
from headwater.http.server.deadlines import ConnectionDeadline, Phase, TimeLimits

MAX_HEAD_BYTES = 64 << 10
MAX_HEADERS = 100
MAX_URL_BYTES = 16 << 10

# The event loop reads at most this much at once. A read may begin with the end of another request,
# so only what exceeds the limit by a whole read is certain to be too large.
_READ_BYTES = 256 << 10
_DRAINED = 1 << 40


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
        if self._is_complete():
            self._unfinished = 0
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

    def _is_complete(self) -> bool:
        """Return whether all requests that have begun were received completely."""
        return self.scope is not None and "method" in self.scope and not self.cycle.more_body

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
        if not is_running or self._may_answer():
            headers = {"connection": "close"} | dict(response.headers)
            lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
            status = HTTPStatus(response.status_code)
            head = f"HTTP/1.1 {status.value} {status.phrase}\r\n{''.join(lines)}\r\n"
            self.transport.write(head.encode() + bytes(response.body))
        # Closed while data arrives, the kernel would reset the connection before the client has
        # read the answer.
        self.flow.pause_reading()
        self.transport.write_eof()

    def _may_answer(self) -> bool:
        """Return whether the request that is running is the one that was refused."""
        is_same = self.cycle.scope is self.scope and not self.pipeline
        return is_same and not self.cycle.response_started


def limited_protocol(gate: ConnectionGate, time_limits: TimeLimits) -> type[LimitedProtocol]:
    """Return the protocol of the connections that pass a gate."""
    return type("LimitedProtocol", (LimitedProtocol,), {"gate": gate, "time_limits": time_limits})


def check_deadlines(connections: Iterable[object], tick: int) -> None:
    """Disconnect the clients that take too long; call this about once a second."""
    for connection in _ours(connections):
        connection.check_deadline(tick)


def abort_connections(connections: Iterable[object]) -> None:
    """Close connections without waiting for their clients."""
    for connection in _ours(connections):
        connection.transport.abort()


def _ours(connections: Iterable[object]) -> list[LimitedProtocol]:
    return [each for each in connections if isinstance(each, LimitedProtocol)]
