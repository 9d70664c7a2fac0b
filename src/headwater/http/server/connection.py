"""A connection of a client: its requests are parsed, given to the application, and answered."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

import httptools
from starlette.types import ASGIApp, Message, Scope
from uvicorn.config import Config
from uvicorn.protocols.utils import get_local_addr, get_remote_addr
from uvicorn.server import ServerState

from headwater.core.logging import log
from headwater.errors.base import RequestError
from headwater.http.routing.problems import problem_response
from headwater.http.routing.request_errors import (
    REFUSAL,
    HeadTooLargeError,
    MalformedError,
    RequestTimeoutError,
    UrlTooLongError,
)
from headwater.http.routing.request_metrics import count_refused
from headwater.http.routing.responses import NO_CONTENT, NOT_MODIFIED
from headwater.http.server.client_limits import (
    ConnectionDeadline,
    ConnectionGate,
    Phase,
    TimeLimits,
)

MAX_HEAD_BYTES = 64 << 10
MAX_HEADERS = 100
MAX_URL_BYTES = 16 << 10

# The event loop reads at most this much at once. A read may begin with the end of another request,
# so only what exceeds the limit by a whole read is certain to be too large.
_READ_BYTES = 256 << 10
_MOST_UNREAD = 64 << 10
_SENT_WITH_HEAD = 64 << 10
_DRAINED = 1 << 40

_ASGI = {"version": "3.0", "spec_version": "2.3"}
_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
_FAILED = b"Internal Server Error"
_FAILURE: list[Message] = [
    {
        "type": "http.response.start",
        "status": HTTPStatus.INTERNAL_SERVER_ERROR.value,
        "headers": [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", b"%d" % len(_FAILED)),
            (b"connection", b"close"),
        ],
    },
    {"type": "http.response.body", "body": _FAILED},
]
_server_log = logging.getLogger("uvicorn.error")


class Exchange:
    """A request and its response: what the application receives, and what it sends.

    The head of a response whose length is known is sent together with the body.
    """

    has_more_body = True
    is_disconnected = False
    is_started = False
    is_complete = False
    _has_news = False
    _news: asyncio.Event | None = None
    """Set like ``_has_news``; made when the application waits."""
    _body = b""
    _head = b""
    _is_chunked = False
    _to_send = 0
    _task: asyncio.Task[None]

    def __init__(
        self, connection: Connection, scope: Scope, *, keeps_alive: bool, expects_continue: bool
    ) -> None:
        self.scope = scope
        self.keeps_alive = keeps_alive
        self._connection = connection
        self._expects_continue = expects_continue

    def start(self) -> None:
        """Let the application answer, in a task."""
        connection = self._connection
        self._task = connection.loop.create_task(self._run(connection.app))
        connection.tasks.add(self._task)

    async def _run(self, app: ASGIApp) -> None:
        try:
            await app(self.scope, self.receive, self.send)
        except BaseException:  # noqa: BLE001 - a task of its own: none else would log it
            _server_log.exception("the application has failed")
        else:
            if self.is_complete or self.is_disconnected:
                return
            _server_log.error("the application did not complete its response")
        finally:
            # Not by a callback, which would cost each request a turn of the loop.
            self._connection.tasks.discard(self._task)
            del self._task
        if self.is_started:
            self._connection.transport.close()
            return
        for message in _FAILURE:
            await self.send(message)

    def add_body(self, part: bytes) -> bool:
        """Add a part of the body; return whether the client must wait with the next one."""
        self._body += part
        self.notify()
        return len(self._body) > _MOST_UNREAD

    def notify(self) -> None:
        """Wake the application if it waits for the body, or for the end of the connection."""
        self._has_news = True
        if self._news is not None:
            self._news.set()

    async def receive(self) -> Message:
        """Return the next part of the body, or that the client has disconnected."""
        connection = self._connection
        if self._expects_continue and not connection.transport.is_closing():
            self._expects_continue = False
            connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if not (self.is_disconnected or self.is_complete):
            connection.resume_reading()
            if not self._has_news:
                self._news = self._news or asyncio.Event()
                await self._news.wait()
                self._news.clear()
            self._has_news = False
        if self.is_disconnected or self.is_complete:
            return {"type": "http.disconnect"}
        body, self._body = self._body, b""
        return {"type": "http.request", "body": body, "more_body": self.has_more_body}

    async def send(self, message: Message) -> None:
        """Send the head or a part of the body of the response."""
        writable = self._connection.writable
        if writable is not None and not self.is_disconnected:
            await writable.wait()
        if self.is_disconnected:
            return
        if not self.is_started and message["type"] == "http.response.start":
            self._send_head(message["status"], message.get("headers", ()))
        elif self.is_started and not self.is_complete and message["type"] == "http.response.body":
            self._send_body(message.get("body", b""), is_last=not message.get("more_body", False))
        else:
            raise RuntimeError(f"the message {message['type']} is out of order")

    def _send_head(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.is_started = True
        self._expects_continue = False
        lines = [_STATUS_LINES[status]]
        length: bytes | None = None
        for given, value in (*self._connection.state.default_headers, *headers):
            name = given.lower()
            if name == b"content-length":
                length = value
            elif name == b"connection":
                self.keeps_alive = self.keeps_alive and value.lower() != b"close"
                continue
            lines.append(b"%b: %b\r\n" % (name, value))
        if not self.keeps_alive:
            lines.append(b"connection: close\r\n")
        is_head = self.scope["method"] == "HEAD"
        if length is not None:
            self._to_send = 0 if is_head else int(length)
        elif not is_head and status not in (NO_CONTENT, NOT_MODIFIED):
            self._is_chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n")
        head = b"".join(lines)
        if not head.count(b"\n") == head.count(b"\r") == len(lines):
            raise RuntimeError("a header of the response has a line break")
        if self._is_chunked:  # the client of a stream waits for its head
            self._connection.transport.write(head)
        else:
            self._head = head

    def _send_body(self, body: bytes, *, is_last: bool) -> None:
        if self.scope["method"] == "HEAD":
            body = b""
        elif self._is_chunked:
            body = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            body += b"0\r\n\r\n" if is_last else b""
        else:
            self._to_send -= len(body)
            if self._to_send < 0 or (is_last and self._to_send):
                raise RuntimeError("the body of the response is not as long as Content-Length")
        connection = self._connection
        if len(body) > _SENT_WITH_HEAD:  # a copy would cost more than a second write
            connection.transport.write(self._head)
            connection.transport.write(body)
        else:
            connection.transport.write(self._head + body)
        self._head = b""
        if is_last:
            self.is_complete = True
            self.notify()
            if not self.keeps_alive:
                connection.transport.close()
            connection.next_exchange()


class Connection(asyncio.Protocol):
    """A connection of a client, closed as soon as it exceeds a limit.

    Uvicorn's server makes one for each, and waits for the ``tasks`` of all when it stops.
    """

    gate: ConnectionGate
    time_limits: TimeLimits
    is_ending = False
    """Whether the server stops, so that each connection ends with its next response."""

    transport: asyncio.Transport
    writable: asyncio.Event | None = None
    """Set when the client has read enough of what was sent; None while nothing waits for it."""
    _client: tuple[str, int] | None
    _server: tuple[str, int | None] | None
    _scheme: str
    _address: str | None = None
    _exchange: Exchange | None = None
    """The last one."""
    _is_refused = False
    _is_read_paused = False
    _requests = 0
    _is_in_head = False
    _expects_continue = False
    _unfinished = 0
    """Bytes since the beginning of a head, or since the last byte of a body."""
    _body_bytes = 0
    _drains = 0

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.app: ASGIApp = config.loaded_app
        self.loop = _loop or asyncio.get_running_loop()
        self.state = server_state
        self.tasks = server_state.tasks
        self._parser = httptools.HttpRequestParser(self)
        # What follows a request with `Connection: close` is ignored, and no reason to refuse it.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._waiting: deque[Exchange] = deque()
        """Requests that arrived before the response to an earlier one was complete."""
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._deadline = ConnectionDeadline(self.time_limits)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self._client, self._server = get_remote_addr(transport), get_local_addr(transport)
        self._scheme = "https" if transport.get_extra_info("sslcontext") else "http"
        address = self._client[0] if self._client else ""
        refusal = self.gate.admit(address)
        if refusal is None:
            self._address = address
            self.state.connections.add(self)  # type: ignore[arg-type]
            return
        self._refuse(refusal)
        transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._address is not None:
            self.gate.release(self._address)
        self.state.connections.discard(self)
        if self._exchange is not None:
            self._exchange.is_disconnected = not self._exchange.is_complete
            self._exchange.notify()
        self.resume_writing()

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._unfinished += len(data)
        body_bytes = self._body_bytes
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # no other protocol is supported, so the request is answered like any other
        except httptools.HttpParserCallbackError as error:
            self._refuse_invalid(error.__context__)
            return
        except httptools.HttpParserError as error:
            self._refuse_invalid(error)
            return
        exchange = self._exchange
        if exchange is not None and not self._is_in_head and not exchange.has_more_body:
            self._unfinished = 0  # all requests that have begun were received completely
        elif self._body_bytes != body_bytes:
            self._unfinished = len(data)
        elif self._unfinished > MAX_HEAD_BYTES + _READ_BYTES:
            self._refuse_invalid(self._head_error())

    def on_message_begin(self) -> None:
        self._requests += 1
        self._is_in_head = True
        self._expects_continue = False
        self._url = b""
        self._headers = []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self._expects_continue = True
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        headers, parser = self._headers, self._parser
        if (
            len(headers) > MAX_HEADERS
            or len(self._url) > MAX_URL_BYTES
            or (self._unfinished > MAX_HEAD_BYTES and self._head_bytes() > MAX_HEAD_BYTES)
        ):
            raise self._head_error()
        url = httptools.parse_url(self._url)
        path: str = url.path.decode("ascii")
        version: str = parser.get_http_version()
        scope = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "server": self._server,
            "client": self._client,
            "scheme": self._scheme,
            "method": parser.get_method().decode("ascii"),
            "root_path": "",
            "path": unquote(path) if "%" in path else path,
            "raw_path": url.path,
            "query_string": url.query or b"",
            "headers": headers,
        }
        # The parser reports trailers as headers, which must not change those of the request.
        self._headers = []
        self._is_in_head = False
        last = self._exchange
        exchange = self._exchange = Exchange(
            self,
            scope,
            keeps_alive=version != "1.0" and parser.should_keep_alive() and not self.is_ending,
            expects_continue=self._expects_continue,
        )
        if last is None or last.is_complete:
            exchange.start()
        else:
            self._pause_reading()
            self._waiting.append(exchange)

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        exchange = self._exchange
        if exchange is not None and not exchange.is_complete and exchange.add_body(body):
            self._pause_reading()

    def on_message_complete(self) -> None:
        if self._exchange is not None:
            self._exchange.has_more_body = False
            self._exchange.notify()

    def next_exchange(self) -> None:
        """Go on with the next request, which may have arrived already."""
        self.state.total_requests += 1
        if self.transport.is_closing():
            return
        self.resume_reading()
        if self._waiting:
            self._waiting.popleft().start()

    def _pause_reading(self) -> None:
        if not self._is_read_paused:
            self._is_read_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Receive more, after a pause."""
        if self._is_read_paused:
            self._is_read_paused = False
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        self.writable = self.writable or asyncio.Event()

    def resume_writing(self) -> None:
        self._drains += 1
        if self.writable is not None:
            self.writable.set()
            self.writable = None

    def shutdown(self) -> None:
        """Close the connection when all that was asked is answered."""
        exchange = self._exchange
        if self._is_refused or exchange is None or exchange.is_complete:
            self.transport.close()
        else:
            exchange.keeps_alive = False

    def check_deadline(self, tick: int) -> None:
        """Disconnect a client that takes too long."""
        phase = self._phase()
        if not self._deadline.has_passed(tick, phase, self._requests, self._transferred(phase)):
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
        exchange = self._exchange
        if self._is_refused:
            return Phase.REFUSED
        if self.transport.get_write_buffer_size():
            return Phase.SENDING
        if exchange is not None and not exchange.is_complete:
            is_waiting = exchange.has_more_body and not (self._is_read_paused or self._waiting)
            return Phase.BODY if is_waiting else Phase.RUNNING
        if self._is_in_head:
            return Phase.HEAD
        return Phase.IDLE if self._requests else Phase.NEW

    def _transferred(self, phase: Phase) -> int:
        """Return a number that grows with each byte that the client has sent or read."""
        if phase is Phase.SENDING:
            return self._drains * _DRAINED - self.transport.get_write_buffer_size()
        return self._body_bytes if phase is Phase.BODY else 0

    def _head_bytes(self) -> int:
        fields = sum(len(name) + len(value) + len(": \r\n") for name, value in self._headers)
        return len(self._url) + fields

    def _head_error(self) -> RequestError:
        if len(self._url) > MAX_URL_BYTES:
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
        exchange = self._exchange
        running = None if exchange is None or exchange.is_complete else exchange
        response = problem_response(error)
        if running is None:
            count_refused(response.status_code)
        else:
            running.scope[REFUSAL] = error
            running.is_disconnected = True
            running.notify()
        is_asked = running is None or not (self._is_in_head or self._waiting or running.is_started)
        if is_asked:
            headers = {"connection": "close"} | dict(response.headers)
            lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
            head = _STATUS_LINES[response.status_code] + "".join(lines).encode() + b"\r\n"
            self.transport.write(head + bytes(response.body))
        # Closed while data arrives, the kernel would reset the connection before the client has
        # read the answer.
        self._pause_reading()
        self.transport.write_eof()
