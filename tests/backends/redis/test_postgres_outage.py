"""During an outage of Postgres events are handled, and history catches up later."""

from __future__ import annotations

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.settings.schema import Settings
from tests.engine.support import past, query
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
