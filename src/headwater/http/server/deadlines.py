"""Deadlines of connections: each phase of a request must end or make progress in time."""

from __future__ import annotations

import math
from enum import Enum, auto

import msgspec

from headwater.settings.groups import HttpSettings

_REFUSAL_TICKS = 2


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
        self._request: object = None
        self._tick = 0.0
        self._transferred = 0

    def has_passed(self, tick: int, phase: Phase, request: object, transferred: int) -> bool:
        """Return whether the client has taken too long for this phase of this request."""
        limits = self._limits
        if phase is not self._phase or request is not self._request:
            self._phase, self._request = phase, request
            self._tick = tick + limits.of_phase(phase)
        else:
            progress = max(0, transferred - self._transferred)
            longest = tick + limits.of_phase(phase)
            self._tick = min(longest, self._tick + progress / limits.rate)
        self._transferred = transferred
        return tick >= self._tick
