"""A rolling restart under load: how long events take to become visible meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from itertools import count
from pathlib import Path
from statistics import quantiles
from typing import NamedTuple

from chaos.features import EMPTY
from chaos.fleet import Fleet
from chaos.run import opened
from chaos.waiting import until
from headwater import FeatureStore, ServiceEvent
from headwater.core.partitioning import partition_of
from headwater.settings.schema import Settings

_BETWEEN_EVENTS_SECONDS = 0.05
_BETWEEN_LOOKS_SECONDS = 0.01
_WARM_UP_EVENTS = 40
_PATIENCE_SECONDS = 240.0


class Gaps(NamedTuple):
    """The longest wait of each partition in each restart, and all waits before it, in seconds."""

    restarting: list[float]
    before: list[float]

    @property
    def longest(self) -> float:
        return max(self.restarting)

    @property
    def p95(self) -> float:
        return quantiles(self.restarting, n=20)[-1]


async def rolling_restart(settings: Settings, folder: Path, workers: int = 4) -> Gaps:
    """Restart the workers one after the other while every partition receives events."""
    async with opened(settings) as store, Fleet(settings, folder, workers) as fleet:
        watch = Watch(store)
        async with asyncio.timeout(_PATIENCE_SECONDS), asyncio.TaskGroup() as group:
            await fleet.at_work(store, _PATIENCE_SECONDS)
            helpers = [group.create_task(watch.publish()), group.create_task(watch.look())]
            await watch.everything_visible(_WARM_UP_EVENTS)
            before = [wait for waits in watch.taken().values() for wait in waits]
            gaps: list[float] = []
            for worker in range(workers):
                await fleet.restart(worker)
                await fleet.at_work(store, _PATIENCE_SECONDS)
                await watch.everything_visible()
                gaps += map(max, watch.taken().values())
            for helper in helpers:
                helper.cancel()
        await fleet.stop()
    return Gaps(gaps, before)


class Watch:
    """Publishes to one account of every partition and measures when each event is visible."""

    def __init__(self, store: FeatureStore) -> None:
        self._store = store
        self._accounts = _one_of_each_partition(store.settings.partitions)
        self._number = 0
        self._last = dict.fromkeys(self._accounts, 0)
        self._published: dict[str, deque[tuple[int, float]]] = defaultdict(deque)
        self._waits: dict[str, list[float]] = defaultdict(list)

    async def publish(self) -> None:
        """Publish until cancelled."""
        while True:
            now, number = time.monotonic(), self._number + 1
            await self._store.bus.publish_many(
                [ServiceEvent("step", account, {"number": number}) for account in self._accounts],
                dedup=False,
            )
            for account in self._accounts:
                self._published[account].append((number, now))
            self._number = number
            await asyncio.sleep(_BETWEEN_EVENTS_SECONDS)

    async def look(self) -> None:
        """Poll the chains until cancelled."""
        while True:
            chains = await self._store.get_features(["chain"], self._accounts)
            now = time.monotonic()
            for account, values in chains.items():
                _, last, _ = values["chain"] or EMPTY
                self._last[account] = last
                published = self._published[account]
                while published and published[0][0] <= last:
                    self._waits[account].append(now - published.popleft()[1])
            await asyncio.sleep(_BETWEEN_LOOKS_SECONDS)

    async def everything_visible(self, more: int = 0) -> None:
        """Wait until everything published so far, and ``more`` further events, are visible."""
        target = self._number + more

        async def visible() -> bool:
            return all(last >= target for last in self._last.values())

        await until(visible, _PATIENCE_SECONDS)

    def taken(self) -> dict[str, list[float]]:
        """Return the waits since the last call, by account."""
        waits, self._waits = self._waits, defaultdict(list)
        return waits


def _one_of_each_partition(partitions: int) -> list[str]:
    found: dict[int, str] = {}
    numbers = count()
    while len(found) < partitions:
        account = f"account-{next(numbers)}"
        found.setdefault(partition_of(account, partitions), account)
    return list(found.values())
