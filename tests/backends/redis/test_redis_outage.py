"""Workers that could not reach Redis for longer than a lease, and are alive."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, suppress

import pytest

from headwater import FeatureStore, Worker
from headwater.backends.redis.leases import RedisLeases
from headwater.declarations.runtime import runtime_of
from headwater.errors import BackendError, BackendUnavailableError
from headwater.ports import Backends, Lease
from headwater.settings.schema import Settings
from tests.engine.support import until
from tests.servers import Machine, restartable_valkey

LEASE_TTL = 2.0

Opened = tuple[Machine, Sequence[FeatureStore]]


@pytest.fixture
async def opened(production: Settings) -> AsyncIterator[Opened]:
    """A Redis that can be stopped, and one store opened by three processes."""
    with restartable_valkey() as (url, machine):
        settings = production.replace(
            redis={"url": url}, partitions=4, worker={"lease_ttl": LEASE_TTL}
        )
        async with AsyncExitStack() as stack:
            stores = [
                await stack.enter_async_context(FeatureStore(settings=settings)) for _ in range(3)
            ]
            yield machine, stores


async def backends_of(stores: Sequence[FeatureStore]) -> list[Backends]:
    return [(await runtime_of(store).open()).backends for store in stores]


async def hold(backends: Backends, worker: str, partitions: Sequence[int]) -> list[Lease]:
    """Register a worker and claim partitions as soon as they are free."""
    await backends.leases.register(worker)
    claimed: list[Lease] = []

    async def all_claimed() -> bool:
        await backends.leases.heartbeat(worker, claimed)
        rest = {*partitions} - {lease.partition for lease in claimed}
        claimed.extend(await backends.leases.claim(worker, rest))
        return len(claimed) == len(partitions)

    await until(all_claimed)
    return claimed


async def outlast_a_lease(machine: Machine, *beating: tuple[Backends, str]) -> None:
    """Stop Redis, let heartbeats fail for longer than a lease, and start it again."""
    machine.kill()
    end = time.monotonic() + 1.25 * LEASE_TTL

    async def is_over() -> bool:
        for backends, worker in beating:
            with suppress(BackendError):
                await backends.leases.heartbeat(worker, [])
        return time.monotonic() > end

    await until(is_over)
    machine.start()


async def test_the_first_worker_to_come_back_waits_for_the_others(opened: Opened) -> None:
    machine, stores = opened
    one, other, _ = await backends_of(stores)
    mine = await hold(one, "w1", [0, 1])
    theirs = await hold(other, "w2", [2, 3])
    await outlast_a_lease(machine, (one, "w1"), (other, "w2"))
    assert await one.leases.heartbeat("w1", mine) == ["w1", "w2"]
    assert await other.leases.heartbeat("w2", theirs) == ["w1", "w2"]
    assert await one.leases.claim("w1", [2, 3]) == []


async def test_partitions_of_a_missing_worker_are_claimed_after_the_lease(opened: Opened) -> None:
    machine, stores = opened
    one, other, _ = await backends_of(stores)
    mine = await hold(one, "w1", [0])
    await hold(other, "w2", [1])
    await outlast_a_lease(machine, (one, "w1"))

    async def w2_is_given_up() -> bool:
        return await one.leases.heartbeat("w1", mine) == ["w1"]

    assert not await w2_is_given_up()
    await until(w2_is_given_up)
    (lease,) = await one.leases.claim("w1", [1])
    assert lease.suspect


async def test_a_partition_is_suspect_no_longer_when_its_owner_turns_out_to_live(
    opened: Opened,
) -> None:
    machine, stores = opened
    one, _, new = await backends_of(stores)
    mine = await hold(one, "w1", [0])
    await outlast_a_lease(machine, (one, "w1"))
    (lease,) = await hold(new, "new", [0])
    assert lease.suspect
    assert await new.bus.attempt(lease, "1-0") == 1
    await one.leases.heartbeat("w1", mine)
    assert await new.bus.attempt(lease, "2-0") == 0
    await new.leases.release([lease])
    (after,) = await one.leases.claim("w1", [0])
    assert not after.suspect


async def test_only_runs_of_workers_that_did_not_come_back_are_counted(opened: Opened) -> None:
    machine, stores = opened
    one, other, new = await backends_of(stores)
    await hold(one, "dead", [0])
    (lease,) = theirs = await hold(other, "w2", [0])
    assert await other.bus.attempt(lease, "1-0") == 1
    await outlast_a_lease(machine, (other, "w2"))
    (lease,) = await hold(new, "new", [0])
    assert await new.bus.attempt(lease, "1-0") == 2
    await other.leases.heartbeat("w2", theirs)
    # Of the two runs so far only one is left, and the first owner is still not back.
    assert await new.bus.attempt(lease, "1-0") == 2


async def test_a_worker_that_was_silent_although_redis_was_there_stays_suspect(
    opened: Opened,
) -> None:
    _, stores = opened
    one, other, _ = await backends_of(stores)
    mine = await hold(one, "stuck", [0])
    (lease,) = await hold(other, "w2", [0])
    await one.leases.heartbeat("stuck", mine)
    assert await other.bus.attempt(lease, "1-0") == 1


async def test_an_outage_that_is_longer_than_a_lease_leaves_partitions_where_they_are(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, (seen, *stores) = opened
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
