"""Workers that could not reach Redis for longer than a lease, and are alive."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack

import pytest
import redis as peer

from headwater import FeatureStore, Worker
from headwater.backends.redis import leases as leases_module
from headwater.backends.redis.keys import Keys
from headwater.backends.redis.leases import RedisLeases
from headwater.declarations.runtime import runtime_of
from headwater.errors import BackendUnavailableError
from headwater.ports import Backends, Lease
from headwater.settings.schema import Settings
from tests.engine.support import until
from tests.servers import Machine, restartable_valkey

LEASE_TTL = 60.0
"""So long that an overloaded machine ends no lease: only ``RestartableStore.pass_a_lease`` does."""
PARTITIONS = 4


class RestartableStore:
    """A Redis that can be stopped, and one store opened by three processes."""

    def __init__(
        self, settings: Settings, machine: Machine, stores: Sequence[FeatureStore]
    ) -> None:
        self.machine = machine
        self.stores = stores
        self._keys = Keys(settings.redis.prefix, PARTITIONS, settings.worker.consumer_group)
        self._passed = 0.0

    async def backends(self) -> list[Backends]:
        return [(await runtime_of(store).open()).backends for store in self.stores]

    def monotonic(self) -> float:
        """Return the time of the processes."""
        return time.monotonic() + self._passed

    def pass_a_lease(self) -> None:
        """Let more time pass than a lease lasts, for the processes and for Redis."""
        self._passed += 1.25 * LEASE_TTL
        workers, millis = self._keys.workers, round(1_250 * LEASE_TTL)
        with peer.Redis(port=self.machine.port) as server:
            for member, beat in server.zrange(workers, 0, -1, withscores=True):
                server.zadd(workers, {member: beat - millis})
            server.delete(*(part.lease for part in self._keys.parts))

    async def outlast_a_lease(self, *beating: tuple[Backends, str]) -> None:
        """Stop Redis, let heartbeats fail for longer than a lease, and start it again."""
        self.machine.kill()
        for backends, worker in beating * 3:
            with pytest.raises(BackendUnavailableError):
                await backends.leases.heartbeat(worker, [])
        self.machine.start()
        self.pass_a_lease()


@pytest.fixture
def lease_ttl() -> float:
    return LEASE_TTL


@pytest.fixture
async def opened(
    production: Settings, lease_ttl: float, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[RestartableStore]:
    with restartable_valkey() as (url, machine):
        settings = production.replace(
            redis={"url": url}, partitions=PARTITIONS, worker={"lease_ttl": lease_ttl}
        )
        async with AsyncExitStack() as stack:
            stores = [
                await stack.enter_async_context(FeatureStore(settings=settings)) for _ in range(3)
            ]
            restartable = RestartableStore(settings, machine, stores)
            monkeypatch.setattr(leases_module, "time", restartable)
            yield restartable


async def hold(backends: Backends, worker: str, partitions: Sequence[int]) -> list[Lease]:
    """Register a worker and claim partitions."""
    await backends.leases.register(worker)
    claimed = await backends.leases.claim(worker, partitions)
    assert [lease.partition for lease in claimed] == [*partitions]
    return claimed


async def test_the_first_worker_to_come_back_waits_for_the_others(opened: RestartableStore) -> None:
    one, other, _ = await opened.backends()
    mine = await hold(one, "w1", [0, 1])
    theirs = await hold(other, "w2", [2, 3])
    await opened.outlast_a_lease((one, "w1"), (other, "w2"))
    assert await one.leases.heartbeat("w1", mine) == ["w1", "w2"]
    assert await other.leases.heartbeat("w2", theirs) == ["w1", "w2"]
    assert await one.leases.claim("w1", [2, 3]) == []


async def test_partitions_of_a_missing_worker_are_claimed_after_the_lease(
    opened: RestartableStore,
) -> None:
    one, other, _ = await opened.backends()
    mine = await hold(one, "w1", [0])
    await hold(other, "w2", [1])
    await opened.outlast_a_lease((one, "w1"))

    assert await one.leases.heartbeat("w1", mine) == ["w1", "w2"]
    opened.pass_a_lease()
    assert await one.leases.heartbeat("w1", mine) == ["w1"]
    (lease,) = await one.leases.claim("w1", [1])
    assert lease.suspect


async def test_a_partition_is_suspect_no_longer_when_its_owner_turns_out_to_live(
    opened: RestartableStore,
) -> None:
    one, _, new = await opened.backends()
    mine = await hold(one, "w1", [0])
    await opened.outlast_a_lease((one, "w1"))
    (lease,) = await hold(new, "new", [0])
    assert lease.suspect
    assert await new.bus.attempt(lease, "1-0") == 1
    await one.leases.heartbeat("w1", mine)
    assert await new.bus.attempt(lease, "2-0") == 0
    await new.leases.release([lease])
    (after,) = await one.leases.claim("w1", [0])
    assert not after.suspect


async def test_only_runs_of_workers_that_did_not_come_back_are_counted(
    opened: RestartableStore,
) -> None:
    one, other, new = await opened.backends()
    await hold(one, "dead", [0])
    opened.pass_a_lease()
    (lease,) = theirs = await hold(other, "w2", [0])
    assert await other.bus.attempt(lease, "1-0") == 1
    await opened.outlast_a_lease((other, "w2"))
    (lease,) = await hold(new, "new", [0])
    assert await new.bus.attempt(lease, "1-0") == 2
    await other.leases.heartbeat("w2", theirs)
    # Of the two runs so far only one is left, and the first owner is still not back.
    assert await new.bus.attempt(lease, "1-0") == 2


async def test_a_worker_that_was_silent_although_redis_was_there_stays_suspect(
    opened: RestartableStore,
) -> None:
    one, other, _ = await opened.backends()
    mine = await hold(one, "stuck", [0])
    opened.pass_a_lease()
    (lease,) = await hold(other, "w2", [0])
    await one.leases.heartbeat("stuck", mine)
    assert await other.bus.attempt(lease, "1-0") == 1


# The workers wait for the end of their leases, and a pause of the machine must not end them.
@pytest.mark.parametrize("lease_ttl", [8.0])
async def test_an_outage_that_is_longer_than_a_lease_leaves_partitions_where_they_are(
    opened: RestartableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, (seen, *stores) = opened.machine, opened.stores
    early, late = workers = [Worker(store) for store in stores]
    running = [asyncio.create_task(worker.run()) for worker in workers]
    beats, beat = Counter[str](), RedisLeases.heartbeat

    async def one_after_the_other(
        self: RedisLeases, worker: str, leases: Sequence[Lease]
    ) -> list[str]:
        # A second beat shows that all that followed the first is done.
        if worker == late.name and beats[early.name] < 2:
            raise BackendUnavailableError("not yet")
        living = await beat(self, worker, leases)
        beats[worker] += 1
        return living

    async def owners() -> list[str | None]:
        return [lag.owner for lag in await seen.admin.lag()]

    async def both_have_their_share() -> bool:
        found = await owners()
        return all(2 <= found.count(worker.name) <= 3 for worker in workers)

    await until(both_have_their_share)
    before = await owners()
    machine.kill()
    await until(lambda: not any(worker.health().ok for worker in workers))
    monkeypatch.setattr(RedisLeases, "heartbeat", one_after_the_other)
    machine.start()
    await until(lambda: all(worker.health().ok for worker in workers))
    assert await owners() == before
    for worker in workers:
        worker.stop()
    await asyncio.gather(*running)
