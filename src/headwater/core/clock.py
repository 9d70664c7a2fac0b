"""The clock: aware UTC times, replaceable in tests."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class Clock(Protocol):
    """The source of the current time, and of pauses between retries."""

    def now(self) -> datetime: ...

    def micros(self) -> int:
        """Return the current time as microseconds since the epoch, the unit of the stores."""

    def monotonic(self) -> int:
        """Return microseconds since an arbitrary start; setting the clock does not change them."""

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The system clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def micros(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> int:
        return time.monotonic_ns() // 1000

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def to_micros(moment: datetime) -> int:
    """Return the exact number of microseconds since the epoch."""
    since = moment - EPOCH
    return since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds


def from_micros(micros: int) -> datetime:
    """Return the aware UTC time that is this many microseconds after the epoch."""
    return EPOCH + micros * MICROSECOND


def in_range(moment: datetime) -> datetime:
    """Return a moment in UTC, limited to the range of ``datetime``.

    Raises TypeError if it has no time zone.
    """
    return from_micros(min(max(to_micros(moment), _FIRST_MICROS), _LAST_MICROS))


_FIRST_MICROS = to_micros(datetime.min.replace(tzinfo=UTC))
_LAST_MICROS = to_micros(datetime.max.replace(tzinfo=UTC))
