"""Ids, metrics, spans and log records of requests."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections import Counter as Tally
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from functools import lru_cache, partial
from itertools import count
from operator import itemgetter

from prometheus_client import Counter, Histogram
from starlette.types import Message, Receive, Scope, Send

from headwater.core.logging import LogRecord, log
from headwater.core.tracing import Tracer, header_traceparent
from headwater.errors.hints import shortened
from headwater.http.routing.route import Resource
from headwater.model.callers import Caller, current_caller
from headwater.settings.schema import Settings
from headwater.telemetry import attributes as names

HEADER = b"x-request-id"
"""The header with the id of a request, which ties its response to its log records."""

OTHER = "(other)"
"""The label of unknown methods: callers choose them, so they must not become labels."""

UNMATCHED = "(unmatched)"
"""The label of unknown paths."""

REQUESTS = Counter(
    "headwater_http_requests_total", "Requests answered.", ["method", "route", "status"]
)
REQUEST_SECONDS = Histogram(
    "headwater_http_request_seconds",
    "Time from the arrival of a request to its response.",
    ["route"],
    buckets=(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30),
)

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_FLUSH_SECONDS = 0.5
_BUFFERED_REQUESTS = 512
_LONGEST_PATH = 1_000

_Match = tuple[Resource, list[str]]
Serve = Callable[[_Match, str, Scope, Receive, Send], Awaitable[None]]
# Probes and scrapes would be most of the traces.
_UNTRACED = frozenset({"public", "metrics"})
_FIRST_SERVER_ERROR = 500

_is_sane = re.compile(rb"[A-Za-z0-9._-]{1,64}").fullmatch

_Answered = tuple[str, str, str, int, float, float, str, Caller | None]
"""Method, route, path and status of a request, when it began and ended, its id and its caller."""


class RequestIds:
    """Gives every request an id: the one its client sent, or a new one.

    New ids are a random prefix of this process and a number, which takes a tenth of the time of a
    UUID.
    """

    def __init__(self) -> None:
        self._prefix = secrets.token_hex(4) + "-"
        self._numbers = count(1)

    def of(self, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """Return the id of a request; an id that could forge log records is replaced."""
        for name, value in headers:
            if name == HEADER and _is_sane(value):
                return value.decode()
        return self._prefix + str(next(self._numbers))


class RequestMetrics:
    """Counts requests and, if the settings say so, logs them; without content, also without ids.

    Requests are buffered, because recording many at once costs several times less for each.
    """

    def __init__(self, settings: Settings) -> None:
        self._has_log = settings.http.access_log
        self._is_private = settings.record.is_private
        self._answered: list[_Answered] = []

    def record(
        self, method: str, route: str, path: str, status: int, began: float, request_id: str
    ) -> None:
        """Buffer a request that was answered just now to the current caller."""
        answered = self._answered
        if not answered:
            asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self.flush)
        if self._is_private:
            path = route  # ids of entities, events and documents are part of paths
        ended, caller = time.perf_counter(), current_caller()
        answered.append((method, route, path, status, began, ended, request_id, caller))
        if len(answered) >= _BUFFERED_REQUESTS:
            self.flush()

    def flush(self) -> None:
        """Count and log the buffered requests."""
        answered, self._answered = self._answered, []
        if not answered:
            return
        _count(answered)
        if self._has_log:
            epoch = time.time() - time.perf_counter()
            log.info_each(_log_record(epoch, request) for request in answered)
            log.flush()


def count_refused(status: int) -> None:
    """Count a request that was refused before its method and path were known."""
    REQUESTS.labels(OTHER, UNMATCHED, str(status)).inc()


def _count(answered: list[_Answered]) -> None:
    tally = Tally(map(itemgetter(0, 1, 3), answered))
    for (method, route, status), number in tally.items():
        label = method if method in METHODS else OTHER
        REQUESTS.labels(label, route, str(status)).inc(number)
    observe = {route: REQUEST_SECONDS.labels(route).observe for _, route, _ in tally}
    for _, route, _, _, began, ended, *_ in answered:
        observe[route](ended - began)


class _RequestRecord(LogRecord, frozen=True, gc=False):
    method: str
    route: str
    path: str
    status: int
    duration_ms: float
    request_id: str
    caller: str | None


def _log_record(epoch: float, answered: _Answered) -> _RequestRecord:
    method, route, path, status, began, ended, request_id, caller = answered
    second, fraction = divmod(epoch + ended, 1)
    timestamp = f"{_format_second(second)}.{int(fraction * 1_000_000):06d}+00:00"
    duration = round((ended - began) * 1000, 3)
    path = shortened(path, _LONGEST_PATH)
    name = None if caller is None else caller.name
    return _RequestRecord(
        timestamp, "info", "request", method, route, path, status, duration, request_id, name
    )


@lru_cache(8)
def _format_second(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def traced_requests(serve: Serve, tracer: Tracer | None) -> Serve:
    """Return a function that answers requests in spans; without a tracer it is the same."""
    return serve if tracer is None else partial(_serve_traced, tracer, serve)


async def _serve_traced(
    tracer: Tracer,
    inner: Serve,
    match: _Match,
    path: str,
    scope: Scope,
    receive: Receive,
    send: Send,
) -> None:
    resource = match[0]
    endpoint = resource.endpoints.get(scope["method"])
    if endpoint is not None and endpoint.scope in _UNTRACED:
        await inner(match, path, scope, receive, send)
        return
    method = scope["method"] if scope["method"] in METHODS else "_OTHER"
    # An application around this one may have begun a span already.
    parent = None if tracer.current() else header_traceparent(scope["headers"])
    attributes = {names.HTTP_METHOD: method, names.HTTP_ROUTE: resource.path}
    with tracer.span(f"{method} {resource.path}", attributes, kind="server", parent=parent) as span:

        async def observed(message: Message) -> None:
            if message["type"] == "http.response.start":
                status: int = message["status"]
                span.set({names.HTTP_STATUS: status})
                if status >= _FIRST_SERVER_ERROR:
                    span.fail(f"answered with {status}")
            await send(message)

        await inner(match, path, scope, receive, observed)
