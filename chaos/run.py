"""One run: servers, workers, publishers and faults together, then the verdict."""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec

from chaos import features, plan, second_group
from chaos.calls import MOST_TIMEOUTS, Calls
from chaos.deployment import Deployment
from chaos.faults import Faults
from chaos.fleet import SECOND_GROUP, Fleet
from chaos.oracle import Oracle, Verdict, expect
from chaos.producer import Brake, Intruder, Ledger, Producer, rate_of
from chaos.reader import Reader
from chaos.restore import Restore
from chaos.servers import Servers, servers
from chaos.waiting import until
from headwater import FeatureStore
from headwater.backends.redis.environment import open_redis
from headwater.core.clock import SystemClock
from headwater.declarations.runtime import runtime_of
from headwater.settings.schema import Settings

_AT_WORK_WITHIN_SECONDS = 60.0
_SETTLED_WITHIN_SECONDS = 180.0
_MOST_AHEAD = 2_000

WORKER = {
    "lease_ttl": 1.0,
    # On a machine with much else to do, a handler that reads from a server may take a second.
    "handler_timeout": 2.0,
    # In a million events, some event runs in two workers that are killed one after the other.
    "max_deliveries": 4,
    "batch_size": 50,
    "poll_interval": 0.5,
    # Low enough that some worker loses so many, and is replaced.
    "max_hung_threads": 2,
}


class Order(NamedTuple):
    """The parameters of a run; everything else follows from the seed."""

    seed: int
    events: int
    workers: int
    seconds: float
    cluster: bool = False
    kafka: bool = False
    sentinel: bool = False
    density: float = 1.0
    """The number of faults as a multiple of the usual one."""
    declared_keys: bool = False
    most_timeouts: float = MOST_TIMEOUTS


class ChaosReport(msgspec.Struct, frozen=True):
    """The faults and events of a run, and the verdict."""

    order: Order
    acknowledged: int
    duplicates: int
    malformed: int
    faults: Mapping[str, int]
    exits: Mapping[int, int]
    deployed: int
    fallbacks: int
    pending: int
    calls: Calls
    published_again: int
    lost_records: int
    verdict: Verdict
    violations: list[str]
    seconds: float


async def run(order: Order, folder: Path) -> ChaosReport:
    """Run the whole plan; write the logs to the folder."""
    kinds = {"cluster": order.cluster, "kafka": order.kafka, "sentinel": order.sentinel}
    async with servers(WORKER, **kinds, declared_keys=order.declared_keys) as started:
        try:
            return await _run(order, started, folder)
        finally:
            for number, machine in enumerate(started.redis):
                shutil.copy(machine.log, folder / f"redis-{number}.log")
            shutil.copy(started.postgres.primary.log, folder / "postgres.log")
            for number, machine in enumerate(started.sentinels):
                shutil.copy(machine.log, folder / f"sentinel-{number}.log")
            for number, machine in enumerate(started.brokers):
                shutil.copy(machine.log, folder / f"kafka-{number}.log")


@asynccontextmanager
async def opened(
    settings: Settings, store: FeatureStore = features.store
) -> AsyncIterator[FeatureStore]:
    """Open the store of a features file in this process."""
    await runtime_of(store).rebind(settings, SystemClock())
    async with store:
        yield store


class Attack:
    """The publishers, the malformed entries and the faults of a run."""

    def __init__(
        self,
        order: Order,
        servers: Servers,
        store: FeatureStore,
        fleet: Fleet,
        ledger: Ledger,
        calls: Calls,
        folder: Path,
    ) -> None:
        self._order = order
        self._ledger = ledger
        self._targets = len(fleet)
        self.deployment = Deployment(store, fleet)
        self._folder = folder
        self._brake = Brake(store, self._is_fault_overdue)
        randoms = [Random(f"{order.seed}/{lane}/duplicates") for lane in range(plan.LANES)]
        self.producers = [
            Producer(store, ledger, self._brake, self.deployment, random, calls)
            for random in randoms
        ]
        self.intruder = Intruder(store, ledger, order.seed)
        self.restore = Restore(store, ledger, self.producers, self.intruder, folder)
        self.faults = Faults(servers, store, fleet, ledger, self.deployment, self.restore)

    def _is_fault_overdue(self) -> bool:
        leeway = min(_MOST_AHEAD, self._order.events // 10)
        return self._ledger.count > self.faults.next_after + leeway

    async def run(self) -> None:
        """Publish all events and inject the faults between them."""
        order = self._order
        seed, events, density = order.seed, order.events, order.density
        rate = rate_of(events, order.seconds)
        kinds = {
            **(plan.ON_CLUSTER if order.cluster or order.sentinel else plan.ON_SERVER),
            **(plan.ON_BROKERS if order.kafka else {}),
        }
        faults = plan.faults(seed, events, self._targets, kinds, density)
        async with self._brake, asyncio.TaskGroup() as group:
            for lane, producer in enumerate(self.producers):
                batches = plan.batches(seed, events, lane, self._folder, density)
                group.create_task(producer.run(batches, rate))
            group.create_task(self.intruder.run(events))
            group.create_task(self.faults.run(faults))


async def _run(order: Order, servers: Servers, folder: Path) -> ChaosReport:
    began = time.monotonic()
    other = servers.settings.replace(worker={"consumer_group": SECOND_GROUP})
    with Ledger(folder / "acknowledged.jsonl") as ledger:
        async with (
            opened(servers.settings) as store,
            opened(other, second_group.store) as second,
            Fleet(servers.settings, folder, order.workers, second=1) as fleet,
        ):
            await fleet.at_work(store, _AT_WORK_WITHIN_SECONDS)
            calls = Calls(order.most_timeouts)
            attack = Attack(order, servers, store, fleet, ledger, calls, folder)
            async with Reader(store, order.seed, calls) as reader:
                await attack.run()
                pending = await _settle(store)
            await _recover(store, fleet)
            codes = await fleet.stop()
            required = attack.deployment.required
            expected = expect(ledger.steps())
            oracle = Oracle(
                store,
                second,
                expected,
                required,
                is_cluster=order.cluster,
                uncertain=attack.restore.uncertain,
            )
            verdict = await oracle.judge(attack.intruder)
            lost_records = await reader.count_lost_records()
        return ChaosReport(
            order,
            ledger.count,
            sum(producer.duplicates for producer in attack.producers),
            len(attack.intruder.sent),
            attack.faults.done,
            fleet.exits,
            len(required),
            attack.deployment.fallbacks,
            pending,
            calls,
            attack.restore.published_again,
            lost_records,
            verdict,
            [
                *_violations(order, attack, fleet, codes, pending),
                *reader.violations,
                *calls.violations,
                *attack.restore.violations,
                *([f"{lost_records} records of contexts are lost"] if lost_records else []),
            ],
            time.monotonic() - began,
        )


async def _settle(store: FeatureStore) -> int:
    """Wait until nothing is pending; return the number still pending at the time limit."""

    async def settled() -> bool:
        return await _pending(store) == 0

    return 0 if await until(settled, _SETTLED_WITHIN_SECONDS) else await _pending(store)


async def _recover(store: FeatureStore, fleet: Fleet) -> None:
    """Wait until workers that a handler still blocks have been replaced.

    Such a worker lost its partition to the one that gave the event up. It cannot stop cleanly: the
    watchdog ends it. A worker that is at work after the lifetime of a lease is not blocked.
    """
    await asyncio.sleep(store.settings.worker.lease_ttl)
    await fleet.at_work(store, _AT_WORK_WITHIN_SECONDS)


async def _pending(store: FeatureStore) -> int:
    """Return the number of waiting events or, without any, of partitions not yet in Postgres."""
    backends = (await runtime_of(store).open()).backends
    waiting = sum(group.waiting for group in await backends.groups.groups())
    if waiting := waiting or await backends.bus.backlog():
        return waiting
    await backends.offline.maintain()
    present = await open_redis(store.settings, store.clock)
    try:
        return sum(state.has_pending for state in await present.outbox.states())
    finally:
        await present.close()


def _violations(
    order: Order, attack: Attack, fleet: Fleet, codes: list[int], pending: int
) -> list[str]:
    found = []
    if fleet.stuck:
        found.append(f"{fleet.stuck} workers did not stop after SIGTERM")
    # A worker that is still starting has no handler for SIGTERM yet.
    if not {0, -signal.SIGTERM}.issuperset(codes):
        found.append(f"workers did not stop cleanly: exit codes {codes}")
    if pending:
        found.append(f"{pending} events or partitions are still pending")
    twice = sum(producer.taken_twice for producer in attack.producers)
    # Kafka accepts events while Redis, which knows their ids, is away.
    if twice and not order.kafka:
        found.append(f"{twice} duplicates were not recognised")
    return found
