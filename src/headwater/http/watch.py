"""Metrics and the log record of each request."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any, NamedTuple

from prometheus_client import Counter, Histogram

from headwater.logs import log

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


class Answered(NamedTuple):
    """A request that was answered, as it is remembered until it is logged."""

    at: float
    method: str
    route: str
    path: str
    status: int
    seconds: float

    def record(self) -> dict[str, Any]:
        """The log record."""
        moment = datetime.fromtimestamp(self.at, UTC)
        return {
            "timestamp": moment.isoformat(timespec="microseconds"),
            "method": self.method,
            "route": self.route,
            "path": self.path,
            "status": self.status,
            "duration_ms": round(self.seconds * 1000, 3),
        }


class Watch:
    """Counts requests, and logs them if asked to.

    Records are made many at a time: the same work, done between requests, takes three times as
    long.
    """

    def __init__(self, *, logs: bool) -> None:
        self._logs = logs
        self._answered: list[Answered] = []
        # Looking up a labelled metric takes longer than counting with it.
        self._requests: dict[tuple[str, str, int], Counter] = {}
        self._seconds: dict[str, Histogram] = {}

    def note(self, method: str, route: str, path: str, status: int, seconds: float) -> None:
        """Counts one answered request."""
        method = method if method in _METHODS else OTHER
        self._counter(method, route, status).inc()
        self._histogram(route).observe(seconds)
        if not self._logs:
            return
        answered = self._answered
        if not answered:
            asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self.flush)
        answered.append(Answered(time.time(), method, route, path, status, seconds))
        if len(answered) >= _BUFFERED_REQUESTS:
            self.flush()

    def flush(self) -> None:
        """Writes the records of the requests answered since the last time."""
        answered, self._answered = self._answered, []
        if answered:
            log.info_each("request", [each.record() for each in answered])
            log.flush()

    def _counter(self, method: str, route: str, status: int) -> Counter:
        key = (method, route, status)
        counter = self._requests.get(key)
        if counter is None:
            counter = self._requests[key] = REQUESTS.labels(method, route, str(status))
        return counter

    def _histogram(self, route: str) -> Histogram:
        histogram = self._seconds.get(route)
        if histogram is None:
            histogram = self._seconds[route] = REQUEST_SECONDS.labels(route)
        return histogram
