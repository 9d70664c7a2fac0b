"""A partition that is under suspicion stays so until its events have had an outcome."""

from __future__ import annotations

import asyncio

from headwater import FeatureStore, ServiceEvent, Worker, entity, feature
from headwater.partitions import partition_of
from headwater.ports import Lease
from headwater.settings import Settings
from tests.engine.support import until


async def test_a_worker_that_stops_before_it_could_clear_a_partition_leaves_it_suspect(
    settings: Settings,
) -> None:
    store = FeatureStore(settings=settings.with_(worker={"lease_ttl": 0.4, "drain_timeout": 0.1}))
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
        roster = (await store.open()).backends.roster
        assert await roster.claim("dead", [partition])
        worker = Worker(store)
        running = asyncio.create_task(worker.run())
        await begun.wait()
        worker.stop()
        await running
        claimed: list[Lease] = []

        async def taken_over() -> bool:
            claimed.extend(await roster.claim("next", [partition]))
            return bool(claimed)

        await until(taken_over)
        assert claimed[0].suspect


async def test_a_worker_that_claims_a_suspect_partition_again_still_suspects_it(
    settings: Settings,
) -> None:
    store = FeatureStore(settings=settings.with_(worker={"lease_ttl": 0.2}))
    claimed: list[Lease] = []
    async with store:
        roster = (await store.open()).backends.roster
        await roster.claim("dead", [1])

        async def taken_over() -> bool:
            claimed.extend(await roster.claim("next", [1]))
            return bool(claimed)

        await until(taken_over)
        (again,) = await roster.claim("next", [1])
        assert claimed[0].suspect
        assert again.suspect
        await roster.release([again])
        (after,) = await roster.claim("last", [1])
        assert not after.suspect
