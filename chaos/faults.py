"""Injects the planned faults, one after the other."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import redis.asyncio

from chaos import pressure
from chaos.deployment import Deployment
from chaos.failover import Failover, SentinelFailover
from chaos.fleet import Fleet
from chaos.network import disturbed
from chaos.plan import Fault, Planned
from chaos.producer import Ledger
from chaos.restore import Restore
from chaos.servers import Servers
from headwater import FeatureStore

_AT_WORK_WITHIN_SECONDS = 5.0
_CUTS = 8
_CUT_PAUSE_SECONDS = 0.05
_DELAY_SECONDS = 0.1
_STEP_SECONDS = 3_600


class Faults:
    """Injects faults into workers and servers when enough events have been published."""

    def __init__(
        self,
        servers: Servers,
        store: FeatureStore,
        fleet: Fleet,
        ledger: Ledger,
        deployment: Deployment,
        restore: Restore,
    ) -> None:
        self._servers = servers
        self._store = store
        self._fleet = fleet
        self._ledger = ledger
        self._deployment = deployment
        self._restore = restore
        self._failover = (
            SentinelFailover(servers.redis, servers.lines, servers.sentinels)
            if servers.sentinels
            else Failover(servers.redis)
        )
        self._frozen: set[asyncio.Task[None]] = set()
        self._ways: dict[Fault, Callable[[Planned], Awaitable[None]]] = {
            "worker killed": self._kill_worker,
            "worker stopped past its lease": self._freeze_worker,
            "workers restarted one by one": self._restart_workers,
            "new feature deployed": self._deploy,
            "Redis killed": self._kill_redis,
            "Redis master killed, replica promoted": self._kill_master,
            "Redis master and replica exchanged": self._exchange_master,
            "connections cut": self._cut_connections,
            "Postgres stopped": self._stop_postgres,
            "Postgres primary killed, replica promoted": self._fail_over_postgres,
            "network slow": self._slow_down,
            "network silent": self._silence,
            "answers cut in half": self._cut_answers,
            "answers lost": self._lose_answers,
            "Redis out of disk, appendfsync always": partial(self._fill_disk, "always"),
            "Redis out of disk, appendfsync everysec": partial(self._fill_disk, "everysec"),
            "Redis out of memory": self._fill_memory,
            "Redis restored from an older snapshot": self._restore_redis,
            "clock of a worker an hour ahead": partial(self._step_clock, _STEP_SECONDS),
            "clock of a worker an hour behind": partial(self._step_clock, -_STEP_SECONDS),
            "Kafka broker killed": self._kill_broker,
            "Kafka broker stopped for a moment": self._freeze_broker,
        }
        self.done: Counter[str] = Counter()
        self.next_after: float = 0
        """Number of published events after which the next fault is due."""

    async def run(self, planned: Sequence[Planned]) -> None:
        """Inject all faults; when it returns, every server is up again."""
        for fault in planned:
            self.next_after = fault.after
            await self._ledger.reach(fault.after)
            if fault.all_at_work:
                await self._fleet.at_work(self._store, _AT_WORK_WITHIN_SECONDS)
            await self._ways[fault.fault](fault)
            self.done[fault.fault] += 1
        self.next_after = math.inf
        if self._frozen:
            await asyncio.wait(self._frozen)

    async def _kill_worker(self, planned: Planned) -> None:
        self._fleet.kill(planned.worker)

    async def _freeze_worker(self, planned: Planned) -> None:
        seconds = self._servers.settings.worker.lease_ttl + planned.seconds
        task = asyncio.create_task(self._fleet.freeze(planned.worker, seconds))
        self._frozen.add(task)

    async def _restart_workers(self, planned: Planned) -> None:
        for worker in range(len(self._fleet)):
            await self._fleet.restart(worker)

    async def _deploy(self, planned: Planned) -> None:
        await self._deployment.run()

    async def _kill_redis(self, planned: Planned) -> None:
        (machine,) = self._servers.redis
        await asyncio.to_thread(machine.kill)
        await asyncio.sleep(planned.seconds)
        await asyncio.to_thread(machine.start)

    async def _kill_master(self, planned: Planned) -> None:
        await self._failover.kill_master(planned.seconds)

    async def _exchange_master(self, planned: Planned) -> None:
        await self._failover.exchange()

    async def _cut_connections(self, planned: Planned) -> None:
        for _ in range(_CUTS):
            for machine in self._servers.redis:
                async with redis.asyncio.Redis(port=machine.port) as client:
                    for kind in ("normal", "pubsub"):
                        await client.client_kill_filter(_type=kind, skipme=True)
            await asyncio.sleep(_CUT_PAUSE_SECONDS)

    async def _stop_postgres(self, planned: Planned) -> None:
        primary = self._servers.postgres.primary
        await asyncio.to_thread(primary.stop)
        await asyncio.sleep(planned.seconds)
        await asyncio.to_thread(primary.start)

    async def _fail_over_postgres(self, planned: Planned) -> None:
        await self._servers.postgres.fail_over(planned.seconds)

    async def _slow_down(self, planned: Planned) -> None:
        await self._disturb(planned.seconds, delay=_DELAY_SECONDS)

    async def _silence(self, planned: Planned) -> None:
        timeout = self._servers.settings.redis.timeout
        await self._disturb(2 * timeout + planned.seconds, holds=True)

    async def _lose_answers(self, planned: Planned) -> None:
        timeout = self._servers.settings.redis.timeout
        await self._disturb(2 * timeout + planned.seconds, loses_answers=True)

    async def _cut_answers(self, planned: Planned) -> None:
        await self._disturb(planned.seconds, cuts=True)

    async def _disturb(self, seconds: float, **how: Any) -> None:
        """Disturb the network to Redis, then the one to Postgres."""
        self.next_after = self._ledger.count  # calls have to come meanwhile
        for lines in (self._servers.lines, self._servers.postgres_lines):
            with disturbed(lines, **how):
                await asyncio.sleep(seconds)

    async def _fill_disk(self, policy: str, planned: Planned) -> None:
        await pressure.fill_disk(self._failover.master, planned.seconds, policy=policy)

    async def _fill_memory(self, planned: Planned) -> None:
        await pressure.fill_memory(self._failover.master, planned.seconds)

    async def _restore_redis(self, planned: Planned) -> None:
        self.next_after = self._ledger.count  # events have to come after the snapshot
        await self._restore.run(self._failover.master)

    async def _step_clock(self, by: int, planned: Planned) -> None:
        await self._fleet.step_clock(planned.worker, by, planned.seconds)

    async def _kill_broker(self, planned: Planned) -> None:
        broker = self._servers.brokers[planned.worker % len(self._servers.brokers)]
        await asyncio.to_thread(broker.kill)
        await asyncio.sleep(planned.seconds)
        await asyncio.to_thread(broker.start)

    async def _freeze_broker(self, planned: Planned) -> None:
        broker = self._servers.brokers[planned.worker % len(self._servers.brokers)]
        broker.freeze()
        await asyncio.sleep(planned.seconds + 2.0)
        broker.thaw()
