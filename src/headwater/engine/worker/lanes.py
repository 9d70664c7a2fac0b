"""The partitions that a worker holds, and the time that quarantined ones get."""

from __future__ import annotations

import asyncio
import time

from headwater.ports import Lease

_TURN_SECONDS = 0.5


class Lane:
    """A partition that this worker holds; it runs one batch at a time."""

    def __init__(self, lease: Lease, batch_size: int, *, is_joined: bool = True) -> None:
        self.lease = lease
        self.is_joined = is_joined
        """Whether all versions of features that run here have joined; see `joining`."""
        self.task: asyncio.Task[None] | None = None
        self.quarantined = batch_size if lease.suspect else 0
        """How many of the next events run one at a time, with nothing else in this process.

        The previous owner died without an outcome, and one of the events that it may have been
        running may be the cause.
        """
        self.is_waiting = False
        """Whether a quarantined event is known to wait."""
        self.counted_position = ""
        """The quarantined event whose attempt was counted last."""
        self.attempts = 0
        self.conflicts = 0


class QuarantineScheduler:
    """Divides time between quarantined events and the other lanes, half to each."""

    def __init__(self) -> None:
        self._quarantine_since: float | None = None
        self._others_until = 0.0

    def is_others_turn(self) -> bool:
        return time.monotonic() < self._others_until

    def hold_others(self) -> None:
        """Let the other lanes start no batch until a quarantined event has its outcome."""
        self._others_until = 0.0

    def begin_quarantine(self) -> None:
        """Start the time for quarantined events, unless it has started."""
        self.hold_others()
        if self._quarantine_since is None:
            self._quarantine_since = time.monotonic()

    def event_ended(self) -> None:
        """Give the other lanes as much time as they have waited, if that is long enough."""
        now = time.monotonic()
        since = now if self._quarantine_since is None else self._quarantine_since
        if now - since >= _TURN_SECONDS:
            self._quarantine_since, self._others_until = None, now + (now - since)

    def end_quarantine(self) -> None:
        """End the time for quarantined events: none is left."""
        self._quarantine_since = None
