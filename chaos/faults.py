"""Injects the planned faults, one after the other."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import redis.asyncio

from chaos.fleet import Fleet
from chaos.plan import Fault, Planned
from chaos.producer import Ledger
from headwater.settings.schema import Settings
from tests.servers import Machine

_AT_WORK_WITHIN_SECONDS = 5.0
_CUTS = 8
_CUT_PAUSE_SECONDS = 0.05


class Faults:
    """Injects faults into workers and servers when enough events have been published."""

    def __init__(self, settings: Settings, redis: Machine, postgres: Machine, fleet: Fleet) -> None:
        self._settings = settings
        self._redis = redis
        self._postgres = postgres
        self._fleet = fleet
        self._frozen: set[asyncio.Task[None]] = set()
        self._ways: dict[Fault, Callable[[Planned], Awaitable[None]]] = {
            "worker killed": self._kill_worker,
            "worker stopped past its lease": self._freeze_worker,
            "workers restarted one by one": self._restart_workers,
            "Redis killed": self._kill_redis,
            "connections cut": self._cut_connections,
            "Postgres stopped": self._stop_postgres,
        }
        self.done: Counter[str] = Counter()

    async def run(self, planned: Sequence[Planned], ledger: Ledger) -> None:
        """Inject all faults; when it returns, every server is up again."""
        for fault in planned:
            await ledger.reach(fault.after)
            if fault.all_at_work:
                await self._fleet.at_work(_AT_WORK_WITHIN_SECONDS)
            await self._ways[fault.fault](fault)
            self.done[fault.fault] += 1
        if self._frozen:
            await asyncio.wait(self._frozen)

    async def _kill_worker(self, planned: Planned) -> None:
        self._fleet.kill(planned.worker)

    async def _freeze_worker(self, planned: Planned) -> None:
        seconds = self._settings.worker.lease_ttl + planned.seconds
        task = asyncio.create_task(self._fleet.freeze(planned.worker, seconds))
        self._frozen.add(task)

    async def _restart_workers(self, planned: Planned) -> None:
        for worker in range(len(self._fleet)):
            await self._fleet.restart(worker)

    async def _kill_redis(self, planned: Planned) -> None:
        await asyncio.to_thread(self._redis.kill)
        await asyncio.sleep(planned.seconds)
        await asyncio.to_thread(self._redis.start)

    async def _cut_connections(self, planned: Planned) -> None:
        async with redis.asyncio.Redis.from_url(self._settings.redis.url) as client:
            for _ in range(_CUTS):
                for kind in ("normal", "pubsub"):
                    await client.client_kill_filter(_type=kind, skipme=True)
                await asyncio.sleep(_CUT_PAUSE_SECONDS)

    async def _stop_postgres(self, planned: Planned) -> None:
        await asyncio.to_thread(self._postgres.stop)
        await asyncio.sleep(planned.seconds)
        await asyncio.to_thread(self._postgres.start)
