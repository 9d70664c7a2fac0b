"""What time it is: always aware, always UTC, and replaceable in tests."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class Clock(Protocol):
    """The source of the present moment and of pauses between retries."""

    def now(self) -> datetime: ...

    def micros(self) -> int:
        """The present moment as the stores keep it: microseconds since the epoch."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def micros(self) -> int:
        return time.time_ns() // 1000

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def to_micros(moment: datetime) -> int:
    """Microseconds since the epoch, exact, as the stores keep time."""
    return (moment - EPOCH) // MICROSECOND


def from_micros(micros: int) -> datetime:
    """The aware UTC moment of so many microseconds since the epoch."""
    return EPOCH + micros * MICROSECOND
