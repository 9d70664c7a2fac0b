"""Limits of open connections, so that the backends can always open files and sockets."""

from __future__ import annotations

import resource
from collections import Counter

from headwater.core.logging import log
from headwater.http.routing.request_errors import TooManyConnectionsError

_RESERVED_DESCRIPTORS = 256


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
