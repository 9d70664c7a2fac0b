"""The clock that functions see: in a computation of the past it shows the moment of that one."""

from __future__ import annotations

from datetime import datetime

from headwater.core.clock import Clock, from_micros
from headwater.features.call_scope import current_scope


class ScopeClock:
    """The store's clock, as ``store.clock`` gives it to functions.

    A value that is computed for a row of a frame, in a replay or in a backfill sees the time of
    that row, record or event. Pauses and elapsed time are real also there.
    """

    def __init__(self, clock: Clock) -> None:
        self.real = real_clock(clock)

    def now(self) -> datetime:
        """Return the time, or the moment of the past that is computed here."""
        moment = current_scope().moment
        return self.real.now() if moment is None else from_micros(moment)

    def micros(self) -> int:
        """Return the same in microseconds since the epoch."""
        moment = current_scope().moment
        return self.real.micros() if moment is None else moment

    def monotonic(self) -> int:
        """Return microseconds that pass also while the past is computed."""
        return self.real.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await self.real.sleep(seconds)


def real_clock(clock: Clock) -> Clock:
    """Return the clock that does not depend on the scope, as leases and stored rows need it."""
    return clock.real if isinstance(clock, ScopeClock) else clock
