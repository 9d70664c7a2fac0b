"""The clockwork: publishes a tick when a scheduled feature is due, once however many run it."""

from __future__ import annotations

import asyncio
from datetime import datetime

from headwater.core.clock import Clock
from headwater.core.logging import Outage
from headwater.declarations.registry import Registry
from headwater.errors import BackendError
from headwater.features import schedule as ticks
from headwater.ports import Bus

_LONGEST_WAIT = 60.0
_BACKEND_PAUSE = 1.0


class Scheduler:
    """Asks the clock, publishes what is due, and waits for the next due time."""

    def __init__(self, registry: Registry, bus: Bus, clock: Clock, outage: Outage) -> None:
        self._registry = registry
        self._bus = bus
        self._clock = clock
        self._outage = outage

    async def run(self, stopping: asyncio.Event) -> None:
        """Runs until told to stop."""
        while self._registry.scheduled() and not stopping.is_set():
            # One moment for both: a timer may fire early, and what tick() does not see as due yet
            # must be what the wait is for.
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
            self._outage.tell(
                "error", "ticks were not published and will be tried again", error, "ticks"
            )
            return False
        self._outage.over("ticks")
        return True

    async def tick(self) -> None:
        """Publishes the ticks that are due and were not published before."""
        await self._publish(self._clock.now())

    async def _publish(self, now: datetime) -> None:
        due = [ticks.make_tick(feature, now) for feature in self._registry.scheduled()]
        if due:
            await self._bus.publish_ticks(due)

    def wait(self, now: datetime) -> float:
        """Seconds until the first due time after a moment, seen from the present."""
        next_due = min(ticks.next_due(feature, now) for feature in self._registry.scheduled())
        return min(_LONGEST_WAIT, (next_due - self._clock.now()).total_seconds())
