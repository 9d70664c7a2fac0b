"""One run: servers, workers, publishers and faults together, then the verdict."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from chaos import features, oracle, plan
from chaos.faults import Faults
from chaos.fleet import Fleet
from chaos.producer import Malformed, Producer, Progress
from headwater import FeatureStore
from headwater.backends.redis.environment import open_redis
from headwater.clock import SystemClock
from headwater.connect import migrate
from headwater.settings import Settings
from tests.servers import Machine, mortal_postgres, mortal_valkey

_SETTLED_WITHIN_SECONDS = 60.0
_POLL_SECONDS = 0.1


class Order(NamedTuple):
    """What is asked for: everything else follows from the seed."""

    seed: int
    events: int
    workers: int
    seconds: float


class Servers(NamedTuple):
    """The two servers of a run and the settings of a store on them."""

    redis: Machine
    postgres: Machine
    settings: Settings


class Report(msgspec.Struct, frozen=True):
    """What was done in a run, and what was found afterwards."""

    seed: int
    events: int
    acknowledged: int
    duplicates: int
    malformed: int
    faults: dict[str, int]
    deaths: int
    verdict: oracle.Verdict
    unsettled: str
    seconds: float
    folder: str

    @property
    def passed(self) -> bool:
        return not self.unsettled and self.acknowledged == self.events and self.verdict.clean


async def run(order: Order) -> Report:
    """Does everything; a run without a violation leaves no folder behind."""
    folder = Path(tempfile.mkdtemp(prefix="headwater-chaos-"))
    began = time.monotonic()
    async with servers() as started:
        report = await _run(order, started, folder, began)
        if not report.passed:
            for name, machine in (("redis", started.redis), ("postgres", started.postgres)):
                shutil.copy(machine.log, folder / f"{name}.log")
    if report.passed:
        shutil.rmtree(folder)
    return report


@asynccontextmanager
async def servers(**worker: float) -> AsyncIterator[Servers]:
    """Starts both servers and makes the tables of a store on them."""
    async with AsyncExitStack() as stack:
        redis_url, redis = stack.enter_context(mortal_valkey())
        postgres_url, postgres = stack.enter_context(mortal_postgres())
        settings = Settings().with_(
            env="production",
            partitions=8,
            redis={"url": redis_url},
            postgres={"url": postgres_url},
            worker={
                "lease_ttl": 1.0,
                "handler_timeout": 0.4,
                "max_deliveries": 3,
                "batch_size": 50,
                "poll_interval": 0.5,
                **worker,
            },
        )
        await migrate(settings)
        yield Servers(redis, postgres, settings)


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[FeatureStore]:
    """The store of the features file, as this process sees it."""
    store = features.store
    await store.rebind(settings, SystemClock())
    try:
        yield store
    finally:
        await store.close()


async def _run(order: Order, servers: Servers, folder: Path, began: float) -> Report:
    progress = Progress(order.events, order.seconds)
    async with opened(servers.settings) as store, Fleet(servers.settings, folder) as fleet:
        fleet.start(order.workers)
        malformed = Malformed(servers.settings, order.seed)
        producers = [
            Producer(store, plan.batches(order.seed, order.events, lane, folder), progress, lane)
            for lane in range(plan.LANES)
        ]
        faults = Faults(servers.redis, servers.postgres, fleet, servers.settings.redis.url)
        async with asyncio.TaskGroup() as group:
            for producer in producers:
                group.create_task(producer.run())
            group.create_task(malformed.run(progress))
            group.create_task(faults.run(progress, plan.faults(order.seed, order.events, order.workers)))
        log = folder / "acknowledged.jsonl"
        progress.write(log)
        unsettled = await _settled(store)
        verdict = await oracle.judge(store, log, malformed, producers)
        return Report(
            seed=order.seed,
            events=order.events,
            acknowledged=len(progress.acknowledged),
            duplicates=sum(producer.duplicates for producer in producers),
            malformed=len(malformed.sent),
            faults=dict(faults.done),
            deaths=fleet.deaths,
            verdict=verdict,
            unsettled=unsettled,
            seconds=time.monotonic() - began,
            folder=str(folder),
        )
