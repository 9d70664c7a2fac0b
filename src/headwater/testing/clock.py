"""A clock that stands until it is moved."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from headwater.core.clock import to_micros
from headwater.core.durations import Duration, to_timedelta
from headwater.errors import InvalidInputError


class ManualClock:
    """Time for tests: it passes when you say so, and when somebody sleeps.

    A sleep returns at once and moves the clock by its length, so retries with backoff cost a test
    nothing. Without a start it stands at the present moment, so that events which take their
    timestamp from the machine do not lie in its future.
    """

    def __init__(self, start: datetime | None = None) -> None:
        if start is not None and start.tzinfo is None:
            raise InvalidInputError("start needs a time zone, for example datetime.now(UTC)")
        self._now = (start or datetime.now(UTC)).astimezone(UTC)

    def now(self) -> datetime:
        """The moment at which the clock stands."""
        return self._now

    def micros(self) -> int:
        """The same moment in microseconds since the epoch."""
        return to_micros(self._now)

    def advance(self, duration: Duration) -> None:
        """Moves the clock forward; scheduled features that become due run with the next drain."""
        self._now += to_timedelta(duration)

    async def sleep(self, seconds: float) -> None:
        """Moves the clock instead of waiting; others get their turn, as in a real sleep."""
        if seconds > 0:
            self._now += timedelta(seconds=seconds)
        await asyncio.sleep(0)
