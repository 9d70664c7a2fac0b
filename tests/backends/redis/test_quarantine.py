"""A suspect partition stays suspect until its events have an outcome."""

from __future__ import annotations

import asyncio

from headwater import FeatureStore, ServiceEvent, Worker, entity, feature
from headwater.core.partitioning import partition_of
from headwater.declarations.runtime import runtime_of
from headwater.settings.schema import Settings
from tests.engine.support import run_set


async def test_a_worker_that_stops_before_it_could_clear_a_partition_leaves_it_suspect(
    settings: Settings,
) -> None:
    store = FeatureStore(settings=settings.replace(worker={"drain_timeout": 0.1}))
    begun = asyncio.Event()

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="note", max_retries=0)
    async def notes(user_id: str, event: ServiceEvent) -> int:
        begun.set()
        await asyncio.Event().wait()
        return 0

    async with store:
        await store.publish("note", "u1")
        partition = partition_of("u1", settings.partitions)
        backends = (await runtime_of(store).open()).backends
        declared = (await run_set(store)).declared
        await backends.leases.register("dead", declared)
        assert await backends.leases.claim("dead", [partition])
        await backends.leases.deregister("dead")
        worker = Worker(store)
        running = asyncio.create_task(worker.run())
        await begun.wait()
        worker.stop()
        await running
        await backends.leases.register("next", declared)
        (lease,) = await backends.leases.claim("next", [partition])
        assert lease.suspect


async def test_a_worker_that_claims_a_suspect_partition_again_still_suspects_it(
    settings: Settings,
) -> None:
    store = FeatureStore(settings=settings)
    async with store:
        backends = (await runtime_of(store).open()).backends
        for worker in ("dead", "next", "last"):
            await backends.leases.register(worker)
        await backends.leases.claim("dead", [1])
        await backends.leases.deregister("dead")
        (first,) = await backends.leases.claim("next", [1])
        (again,) = await backends.leases.claim("next", [1])
        assert first.suspect
        assert again.suspect
        await backends.leases.release([again])
        (after,) = await backends.leases.claim("last", [1])
        assert not after.suspect


async def test_other_partitions_work_between_the_events_that_run_alone(settings: Settings) -> None:
    store = FeatureStore(settings=settings)
    suspect = partition_of("u1", settings.partitions)
    other = next(f"u{n}" for n in range(2, 99) if partition_of(f"u{n}", 4) != suspect)
    running: set[str] = set()
    beside: list[set[str]] = []
    done: list[str] = []

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="note", max_retries=0)
    async def notes(user_id: str, event: ServiceEvent) -> int:
        running.add(user_id)
        if user_id == "u1":
            beside.append(running - {user_id})
        await asyncio.sleep(0.06)
        if user_id == "u1":
            beside.append(running - {user_id})
        running.discard(user_id)
        done.append(user_id)
        return len(done)

    async with store:
        backends = (await runtime_of(store).open()).backends
        await backends.leases.register("dead", (await run_set(store)).declared)
        await backends.leases.claim("dead", [suspect])
        await backends.leases.deregister("dead")
        await store.bus.publish_many([ServiceEvent("note", "u1", {"n": n}) for n in range(20)])
        await store.bus.publish_many([ServiceEvent("note", other, {"n": n}) for n in range(20)])
        await store.drain()
    assert sorted(done) == sorted(["u1"] * 20 + [other] * 20)
    # The quarantined event runs alone, and the other one does not wait for its end.
    assert beside == [set()] * 40
    assert done[0] == "u1"
    assert other in done[:19]
