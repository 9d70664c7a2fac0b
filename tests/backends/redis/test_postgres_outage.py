"""During an outage of Postgres events are handled, and history catches up later."""

from __future__ import annotations

import asyncio

from headwater import ContextItem, FeatureStore, ServiceEvent, Worker, entity, feature
from headwater.settings.schema import Settings
from tests.engine.support import past, query, until
from tests.servers import restartable_postgres


def shop(settings: Settings) -> FeatureStore:
    store = FeatureStore(settings=settings)

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["amount"])

    return store


async def test_a_store_opened_during_an_outage_of_postgres_works_and_catches_up(
    production: Settings,
) -> None:
    with restartable_postgres() as (url, machine):
        settings = production.replace(postgres={"url": url})
        async with shop(settings) as store:
            await store.publish("buy", "u1", {"amount": 1})
            await store.drain()
        machine.kill()
        async with shop(settings) as store:
            await store.publish("buy", "u1", {"amount": 2})
            await store.drain()
            assert await store.get_feature("total", "u1") == 2
            assert [health.ok for health in await store.admin.health()] == [True, False]
            machine.start()
            assert await past(store, "total") == [1, 2]
            assert await query(store, "SELECT count(*) FROM events") == [(2,)]
            assert all(health.ok for health in await store.admin.health())


async def test_a_record_that_postgres_cannot_take_is_not_the_failure_of_a_handler(
    production: Settings,
) -> None:
    runs = 0
    with restartable_postgres() as (url, machine):
        settings = production.replace(postgres={"url": url}, record={"required": True})
        async with FeatureStore(settings=settings) as store:

            @store.entity
            class User:
                user_id: str

            @store.context(max_tokens=10)
            async def offer(user_id: str) -> list[ContextItem]:
                return [ContextItem("buy more")]

            @store.feature(User, trigger="ask", max_retries=0)
            async def asked(user_id: str, event: ServiceEvent) -> int:
                nonlocal runs
                runs += 1
                await offer(user_id)
                return runs

            await store.drain()  # Postgres has confirmed the store
            machine.kill()
            await store.publish("ask", "u1", {})
            worker = Worker(store)
            running = asyncio.create_task(worker.run())
            await until(lambda: runs > 1)
            machine.start()

            async def is_done() -> bool:
                return bool(await store.get_feature("asked", "u1"))

            await until(is_done)
            worker.stop()
            await running
            assert await store.dead_letters.list() == []
