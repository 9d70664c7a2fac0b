"""Tools for testing: a store in a temporary folder, a manual clock, a stand-in for models.

async def test_spending_adds_up() -> None:
    async with temporary(features.store) as store:
        await store.publish("purchase", "u1", {"amount": 30.0})
        await store.drain()
        assert await store.get_feature("total_spend", "u1") == 30.0
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from tempfile import TemporaryDirectory

from headwater.core.clock import Clock, to_micros
from headwater.core.durations import Duration, to_timedelta
from headwater.declarations.runtime import runtime_of
from headwater.errors import InvalidInputError
from headwater.store.feature_store import FeatureStore
from headwater.testing.model_server import ModelServer

__all__ = ["ManualClock", "ModelServer", "temporary"]


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


@asynccontextmanager
async def temporary(store: FeatureStore, clock: Clock | None = None) -> AsyncIterator[FeatureStore]:
    """Run a store, with all its declarations, in an empty temporary folder.

    Inside the block the store is embedded, regardless of its settings; afterwards it has its
    original settings and clock again. Pass a ManualClock to control the time.
    """
    settings, real = store.settings, runtime_of(store).clock
    with TemporaryDirectory(prefix="headwater-") as home:
        embedded = settings.replace(
            home=home, env="development", redis={"url": ""}, postgres={"url": ""}
        )
        await runtime_of(store).rebind(embedded, clock or real)
        try:
            yield store
        finally:
            await runtime_of(store).rebind(settings, real)
