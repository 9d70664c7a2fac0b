"""A clock that tests control."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from headwater.core.clock import to_micros
from headwater.core.durations import Duration, to_timedelta
from headwater.errors import InvalidInputError


class ManualClock:
    """A clock for tests that moves only by ``advance`` and ``sleep``.

    A sleep returns immediately and moves the clock, so retries with backoff take no time. The
    clock starts at the current time by default, so that events with a timestamp from the system
    clock are not in its future.
    """

    def __init__(self, start: datetime | None = None) -> None:
        if start is not None and start.tzinfo is None:
            raise InvalidInputError("start needs a time zone, for example datetime.now(UTC)")
        self._now = (start or datetime.now(UTC)).astimezone(UTC)

    def now(self) -> datetime:
        """Return the current time of this clock."""
        return self._now

    def micros(self) -> int:
        """Return the current time in microseconds since the epoch."""
        return to_micros(self._now)

    def monotonic(self) -> int:
        """Return microseconds that pass only by ``advance`` and ``sleep``."""
        return to_micros(self._now)

    def advance(self, duration: Duration) -> None:
        """Move the clock forward; scheduled features that become due run with the next drain.

        >>> clock = ManualClock()
        >>> before = clock.now()
        >>> clock.advance("1h")
        >>> clock.now() - before
        datetime.timedelta(seconds=3600)
        """
        self._now += to_timedelta(duration)

    async def sleep(self, seconds: float) -> None:
        """Move the clock instead of waiting, and let other tasks run once."""
        if seconds > 0:
            self._now += timedelta(seconds=seconds)
        await asyncio.sleep(0)
