"""Limits of clients: how many connections they may open, and how long each may take."""

from __future__ import annotations

import math
from collections import Counter
from enum import Enum, auto

import msgspec

from headwater.core.logging import log
from headwater.http.routing.request_errors import TooManyConnectionsError
from headwater.settings.groups import HttpSettings

_REFUSAL_TICKS = 2


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
        self._request = 0
        self._tick = 0.0
        self._transferred = 0

    def has_passed(self, tick: int, phase: Phase, request: int, transferred: int) -> bool:
        """Return whether the client has taken too long for this phase of a numbered request."""
        limits = self._limits
        if phase is not self._phase or request != self._request:
            self._phase, self._request = phase, request
            self._tick = tick + limits.of_phase(phase)
        else:
            progress = max(0, transferred - self._transferred)
            longest = tick + limits.of_phase(phase)
            self._tick = min(longest, self._tick + progress / limits.rate)
        self._transferred = transferred
        return tick >= self._tick
