"""Whether and when a failed handler runs again."""

from __future__ import annotations

import math
import random

from prometheus_client import Gauge

from headwater.core.logging import log
from headwater.errors import (
    ContextFailedError,
    DeclarationError,
    FunctionRaisedError,
    HungHandlerError,
    InvalidInputError,
    RetrieverFailedError,
    UnknownNameError,
)

_FIRST_PAUSE_MICROS = 100_000
_MAX_PAUSE_MICROS = 30_000_000
_MAX_DOUBLINGS = 16
_WRAPPERS = (FunctionRaisedError, RetrieverFailedError, ContextFailedError)
_PERMANENT = (DeclarationError, HungHandlerError, InvalidInputError, UnknownNameError)

BREAKER_OPEN = Gauge(
    "headwater_circuit_breaker_open",
    "1 while the feature's circuit breaker in this process is open, 0 after it has "
    "closed; a breaker that never opened is not listed.",
    ["feature"],
)


def is_permanent(error: Exception) -> bool:
    """Return whether a retry cannot help: a type, a name, an id or the call itself was refused."""
    while isinstance(error, _WRAPPERS):
        error = error.raised
    return isinstance(error, _PERMANENT)


def backoff(attempt: int) -> int:
    """Return the microseconds to wait after a failed attempt: doubling, with jitter, bounded."""
    doubled = _FIRST_PAUSE_MICROS * 2 ** min(attempt, _MAX_DOUBLINGS)
    return int(min(_MAX_PAUSE_MICROS, doubled) * random.uniform(0.5, 1.5))


class RetryBudget:
    """The time that a partition may still wait before retries, in microseconds.

    Waiting uses it up and all other time refills it, so a partition waits at most this long at
    once, and at most half of the time. Entities that wait at the same time use it once.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._left = most
        self._counted_until = 0

    def spend(self, wanted: int, now: int) -> int:
        """Return how long a handler may wait from now on: less than wanted if little is left."""
        if now > self._counted_until:
            self._left = min(self._most, self._left + now - self._counted_until)
            self._counted_until = now
        until = min(now + wanted, self._counted_until + self._left)
        if until > self._counted_until:
            self._left -= until - self._counted_until
            self._counted_until = until
        return until - now


class CircuitBreakers:
    """A circuit breaker for each feature, which opens after ``threshold`` consecutive failures.

    While it is open, the feature's events get one attempt each; the first success closes it.
    """

    def __init__(self, threshold: int) -> None:
        self._threshold = threshold or math.inf
        self.failures: dict[str, int] = {}
        """The consecutive failures of each feature whose last event failed."""

    def is_open(self, feature: str) -> bool:
        return self.failures.get(feature, 0) >= self._threshold

    def record_failure(self, feature: str) -> None:
        """Count an event that failed although a retry might have helped."""
        failures = self.failures[feature] = self.failures.get(feature, 0) + 1
        if failures == self._threshold:
            BREAKER_OPEN.labels(feature).set(1)
            log.warning("circuit breaker opened", feature=feature, failures=failures)

    def record_success(self, feature: str) -> None:
        """Forget the failures of a feature."""
        failures = self.failures.pop(feature, 0)
        if failures >= self._threshold:
            BREAKER_OPEN.labels(feature).set(0)
            log.info("circuit breaker closed", feature=feature, failures=failures)

    def close(self) -> None:
        """Forget all failures: a store that is closed handles no event, so none fails any more."""
        for feature in filter(self.is_open, self.failures):
            BREAKER_OPEN.labels(feature).set(0)
        self.failures.clear()
