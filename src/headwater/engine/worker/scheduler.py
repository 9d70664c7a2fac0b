"""The scheduler: it publishes one tick per due time, however many workers run it."""

from __future__ import annotations

import asyncio
from datetime import datetime

from headwater.core.logging import Outage
from headwater.errors import BackendError
from headwater.features import schedule as ticks
from headwater.features.services import Services

_MAX_WAIT_SECONDS = 60.0
_BACKEND_PAUSE = 1.0


class Scheduler:
    """Publishes the ticks that are due, and waits for the next due time."""

    def __init__(self, services: Services, outage: Outage) -> None:
        self._registry = services.registry
        self._bus = services.backends.bus
        self._clock = services.clock
        self._outage = outage

    async def run(self, stopping: asyncio.Event) -> None:
        """Run until stopped."""
        while self._registry.scheduled() and not stopping.is_set():
            # One moment for both: a timer may fire early, and the wait must be for the tick that
            # was not due yet.
            now = self._clock.now()
            published = await self._try(now)
            try:
                async with asyncio.timeout(self.wait(now) if published else _BACKEND_PAUSE):
                    await stopping.wait()
            except TimeoutError:
                continue

    async def _try(self, now: datetime) -> bool:
        try:
            await self._publish(now)
        except BackendError as error:
            self._outage.report("error", "publishing ticks failed; retrying", error, "ticks")
            return False
        self._outage.recovered("ticks")
        return True

    async def tick(self) -> None:
        """Publish the ticks that are due and were not published before."""
        await self._publish(self._clock.now())

    async def _publish(self, now: datetime) -> None:
        due = [ticks.make_tick(feature, now) for feature in self._registry.scheduled()]
        if due:
            await self._bus.publish_ticks(due)

    def wait(self, now: datetime) -> float:
        """Return the seconds from the present to the first due time after a moment."""
        next_due = min(ticks.next_due(feature, now) for feature in self._registry.scheduled())
        return min(_MAX_WAIT_SECONDS, (next_due - self._clock.now()).total_seconds())
