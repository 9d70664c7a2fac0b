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
from headwater.settings.schema import Settings
from tests.servers import Machine, mortal_postgres, mortal_valkey

_AT_WORK_WITHIN_SECONDS = 60.0
_SETTLED_WITHIN_SECONDS = 180.0

WORKER = {
    "lease_ttl": 1.0,
    "handler_timeout": 0.4,
    # In a million events one is bound to be at work in two workers that are killed in a row.
    "max_deliveries": 4,
    "batch_size": 50,
    "poll_interval": 0.5,
}


class Order(NamedTuple):
    """What is asked for; everything else follows from the seed."""

    seed: int
    events: int
    workers: int
    seconds: float


class Servers(NamedTuple):
    """The two servers of a run and the settings of a store on them."""

    redis: Machine
    postgres: Machine
    settings: Settings


class VerificationReport(msgspec.Struct, frozen=True):
    """What was done in a run, and what was found afterwards."""

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


async def run(order: Order, folder: Path) -> VerificationReport:
    """Does everything; the folder gets the logs."""
    async with servers(WORKER) as started:
        try:
            return await _run(order, started, folder)
        finally:
            for name, machine in (("redis", started.redis), ("postgres", started.postgres)):
                shutil.copy(machine.log, folder / f"{name}.log")


@asynccontextmanager
async def servers(worker: Mapping[str, float]) -> AsyncIterator[Servers]:
    """Starts both servers, and makes the tables of a store on them."""
    with ExitStack() as stack:
        redis_url, redis = stack.enter_context(mortal_valkey())
        postgres_url, postgres = stack.enter_context(mortal_postgres())
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
    """The store of the features file, as this process sees it."""
    store = features.store
    await store.rebind(settings, SystemClock())
    async with store:
        yield store


class Attack:
    """Everything that happens to an engine in a run."""

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
        """Publishes all events, with the faults between them."""
        seed, events, workers, seconds = self._order
        rate = rate_of(events, seconds)
        async with self._brake, asyncio.TaskGroup() as group:
            for lane, producer in enumerate(self.producers):
                batches = plan.batches(seed, events, lane, folder)
                group.create_task(producer.run(batches, rate))
            group.create_task(self.intruder.run(events))
            group.create_task(self.faults.run(plan.faults(seed, events, workers), self._ledger))


async def _run(order: Order, servers: Servers, folder: Path) -> VerificationReport:
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
        return VerificationReport(
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
    """Waits until nothing is left to do; gives how much still is if that takes too long."""

    async def settled() -> bool:
        return await _pending(store) == 0

    return 0 if await until(settled, _SETTLED_WITHIN_SECONDS) else await _pending(store)


async def _pending(store: FeatureStore) -> int:
    """How many events wait to be handled, then how many partitions to be copied to the past."""
    backends = (await store.open()).backends
    waiting = await backends.bus.backlog()
    if waiting:
        return waiting
    await backends.offline.maintain()
    present = await open_redis(store.settings, store.clock)
    try:
        return len(await present.outbox.filled())
    finally:
        await present.close()


def _violations(attack: Attack, fleet: Fleet, codes: list[int], pending: int) -> list[str]:
    found = []
    if fleet.stuck:
        found.append(f"{fleet.stuck} workers did not leave when asked to")
    # One that was still starting knows no good order yet.
    if not {0, -signal.SIGTERM}.issuperset(codes):
        found.append(f"workers did not stop in good order: exit codes {codes}")
    if pending:
        found.append(f"{pending} events or partitions are still pending")
    twice = sum(producer.taken_twice for producer in attack.producers)
    if twice:
        found.append(f"{twice} duplicates were not recognised")
    return found
