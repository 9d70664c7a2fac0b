"""Metrics and the log record of each request."""

from __future__ import annotations

import asyncio
import time
from collections import Counter as Tally
from datetime import UTC, datetime
from functools import lru_cache
from operator import itemgetter

from prometheus_client import Counter, Histogram

from headwater.core.logging import LogRecord, log

OTHER = "(other)"
"""The label of methods that no route has: callers choose them, so they are not counted apart."""

REQUESTS = Counter(
    "headwater_http_requests_total", "Requests answered.", ["method", "route", "status"]
)
REQUEST_SECONDS = Histogram(
    "headwater_http_request_seconds",
    "Time from a request's arrival to its answer.",
    ["route"],
    buckets=(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30),
)

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_FLUSH_SECONDS = 0.5
_BUFFERED_REQUESTS = 512

_Answered = tuple[str, str, str, int, float, float]
"""A request's method, route, path and status, and when it began and ended."""


class Watch:
    """Counts requests, and logs them if asked to.

    Both are done for many requests at a time, because the same work costs several times as much
    when it is spread between them.
    """

    def __init__(self, *, logs: bool) -> None:
        self._logs = logs
        self._answered: list[_Answered] = []

    def note(self, method: str, route: str, path: str, status: int, began: float) -> None:
        """Remembers a request that was answered just now."""
        answered = self._answered
        if not answered:
            asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self.flush)
        answered.append((method, route, path, status, began, time.perf_counter()))
        if len(answered) >= _BUFFERED_REQUESTS:
            self.flush()

    def flush(self) -> None:
        """Counts and logs the requests answered since the last time."""
        answered, self._answered = self._answered, []
        if not answered:
            return
        _count(answered)
        if self._logs:
            start = time.time() - time.perf_counter()
            log.info_each(_record(start, each) for each in answered)
            log.flush()


def _count(answered: list[_Answered]) -> None:
    tally = Tally(map(itemgetter(0, 1, 3), answered))
    for (method, route, status), number in tally.items():
        known = method if method in _METHODS else OTHER
        REQUESTS.labels(known, route, str(status)).inc(number)
    observe = {route: REQUEST_SECONDS.labels(route).observe for _, route, _ in tally}
    for _, route, _, _, began, ended in answered:
        observe[route](ended - began)


class _Request(LogRecord, frozen=True, gc=False):
    method: str
    route: str
    path: str
    status: int
    duration_ms: float


def _record(start: float, answered: _Answered) -> _Request:
    method, route, path, status, began, ended = answered
    second, fraction = divmod(start + ended, 1)
    moment = f"{_second(second)}.{int(fraction * 1_000_000):06d}+00:00"
    took = round((ended - began) * 1000, 3)
    return _Request(moment, "info", "request", method, route, path, status, took)


@lru_cache(8)
def _second(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
