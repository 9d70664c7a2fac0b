"""Metrics and the log record of each request."""

from __future__ import annotations

import asyncio

from prometheus_client import Counter, Histogram

from headwater.logs import log

OTHER = "(other)"
"""The label of methods that no route has."""

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


class Watch:
    """Counts requests, and logs them if asked to."""

    def __init__(self, *, logs: bool) -> None:
        self._logs = logs
        self._flushing = False
        # Looking up a labelled metric takes longer than counting with it.
        self._requests: dict[tuple[str, str, int], Counter] = {}
        self._seconds: dict[str, Histogram] = {}

    def note(self, method: str, route: str, path: str, status: int, seconds: float) -> None:
        """Counts one answered request."""
        method = method if method in _METHODS else OTHER
        self._counter(method, route, status).inc()
        self._histogram(route).observe(seconds)
        if self._logs:
            log.info(
                "request",
                method=method,
                route=route,
                path=path,
                status=status,
                duration_ms=round(seconds * 1000, 3),
            )
            self._flush_soon()

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

    def _flush_soon(self) -> None:
        """Sees to it that a buffered record is written although no request may follow."""
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self._flush)

    def _flush(self) -> None:
        self._flushing = False
        log.flush()
