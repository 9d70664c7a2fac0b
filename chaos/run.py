"""One run: servers, workers, publishers and faults together, then the verdict."""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from chaos import features, plan
from chaos.faults import Faults
from chaos.fleet import Fleet
from chaos.oracle import Oracle, Verdict, expect
from chaos.producer import Brake, Intruder, Ledger, Producer, rate_of
from chaos.waiting import until
from headwater import FeatureStore
from headwater.backends.connect import migrate
from headwater.backends.redis.environment import open_redis
from headwater.core.clock import SystemClock
from headwater.declarations.runtime import runtime_of
from headwater.settings.schema import Settings
from tests.servers import Machine, restartable_postgres, restartable_valkey

_AT_WORK_WITHIN_SECONDS = 60.0
_SETTLED_WITHIN_SECONDS = 180.0

WORKER = {
    "lease_ttl": 1.0,
    "handler_timeout": 0.4,
    # In a million events, some event runs in two workers that are killed one after the other.
    "max_deliveries": 4,
    "batch_size": 50,
    "poll_interval": 0.5,
}


class Order(NamedTuple):
    """The parameters of a run; everything else follows from the seed."""

    seed: int
    events: int
    workers: int
    seconds: float


class Servers(NamedTuple):
    """The two servers of a run and the settings of a store on them."""

    redis: Machine
    postgres: Machine
    settings: Settings


class ChaosReport(msgspec.Struct, frozen=True):
    """The faults and events of a run, and the verdict."""

    order: Order
    acknowledged: int
    duplicates: int
    malformed: int
    faults: Mapping[str, int]
    exits: Mapping[int, int]
    pending: int
    verdict: Verdict
    violations: list[str]
    seconds: float


async def run(order: Order, folder: Path) -> ChaosReport:
    """Run the whole plan; write the logs to the folder."""
    async with servers(WORKER) as started:
        try:
            return await _run(order, started, folder)
        finally:
            for name, machine in (("redis", started.redis), ("postgres", started.postgres)):
                shutil.copy(machine.log, folder / f"{name}.log")


@asynccontextmanager
async def servers(worker: Mapping[str, float]) -> AsyncIterator[Servers]:
    """Start both servers and create the tables of a store on them."""
    with ExitStack() as stack:
        redis_url, redis = stack.enter_context(restartable_valkey())
        postgres_url, postgres = stack.enter_context(restartable_postgres())
        settings = Settings().replace(
            env="production",
            partitions=8,
            redis={"url": redis_url},
            postgres={"url": postgres_url},
            worker=worker,
            log={"level": "warning", "format": "json"},
        )
        await migrate(settings)
        yield Servers(redis, postgres, settings)


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[FeatureStore]:
    """Open the store of the features file in this process."""
    store = features.store
    await runtime_of(store).rebind(settings, SystemClock())
    async with store:
        yield store


class Attack:
    """The publishers, the malformed entries and the faults of a run."""

    def __init__(
        self, order: Order, servers: Servers, store: FeatureStore, fleet: Fleet, ledger: Ledger
    ) -> None:
        self._order = order
        self._ledger = ledger
        self._brake = Brake(store)
        self.producers = [
            Producer(store, ledger, self._brake, order.seed, lane) for lane in range(plan.LANES)
        ]
        self.intruder = Intruder(servers.settings, ledger, order.seed)
        self.faults = Faults(servers.settings, servers.redis, servers.postgres, fleet)

    async def run(self, folder: Path) -> None:
        """Publish all events and inject the faults between them."""
        seed, events, workers, seconds = self._order
        rate = rate_of(events, seconds)
        async with self._brake, asyncio.TaskGroup() as group:
            for lane, producer in enumerate(self.producers):
                batches = plan.batches(seed, events, lane, folder)
                group.create_task(producer.run(batches, rate))
            group.create_task(self.intruder.run(events))
            group.create_task(self.faults.run(plan.faults(seed, events, workers), self._ledger))


async def _run(order: Order, servers: Servers, folder: Path) -> ChaosReport:
    began = time.monotonic()
    with Ledger(folder / "acknowledged.jsonl") as ledger:
        async with (
            opened(servers.settings) as store,
            Fleet(servers.settings, folder, order.workers) as fleet,
        ):
            await fleet.at_work(_AT_WORK_WITHIN_SECONDS)
            attack = Attack(order, servers, store, fleet, ledger)
            await attack.run(folder)
            pending = await _settle(store)
            codes = await fleet.stop()
            verdict = await Oracle(store, expect(ledger.steps())).judge(attack.intruder)
        return ChaosReport(
            order,
            ledger.count,
            sum(producer.duplicates for producer in attack.producers),
            len(attack.intruder.sent),
            attack.faults.done,
            fleet.exits,
            pending,
            verdict,
            _violations(attack, fleet, codes, pending),
            time.monotonic() - began,
        )


async def _settle(store: FeatureStore) -> int:
    """Wait until nothing is pending; return the number still pending at the time limit."""

    async def settled() -> bool:
        return await _pending(store) == 0

    return 0 if await until(settled, _SETTLED_WITHIN_SECONDS) else await _pending(store)


async def _pending(store: FeatureStore) -> int:
    """Return the number of waiting events or, without any, of partitions not yet in Postgres."""
    backends = (await runtime_of(store).open()).backends
    waiting = await backends.bus.backlog()
    if waiting:
        return waiting
    await backends.offline.maintain()
    present = await open_redis(store.settings, store.clock)
    try:
        return sum(state.has_pending for state in await present.outbox.states())
    finally:
        await present.close()


def _violations(attack: Attack, fleet: Fleet, codes: list[int], pending: int) -> list[str]:
    found = []
    if fleet.stuck:
        found.append(f"{fleet.stuck} workers did not stop after SIGTERM")
    # A worker that is still starting has no handler for SIGTERM yet.
    if not {0, -signal.SIGTERM}.issuperset(codes):
        found.append(f"workers did not stop cleanly: exit codes {codes}")
    if pending:
        found.append(f"{pending} events or partitions are still pending")
    twice = sum(producer.taken_twice for producer in attack.producers)
    if twice:
        found.append(f"{twice} duplicates were not recognised")
    return found
