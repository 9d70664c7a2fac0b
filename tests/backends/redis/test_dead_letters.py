"""Dead letters that several processes redrive at the same time."""

from __future__ import annotations

import asyncio

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.errors import UnknownDeadLetterError
from headwater.settings.schema import Settings


def shop(settings: Settings, *, broken: bool) -> FeatureStore:
    store = FeatureStore(settings=settings)

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="buy", max_retries=0)
    async def total(user_id: str, event: ServiceEvent) -> int:
        if broken:
            raise ValueError("no")
        return (await store.get_feature("total", user_id) or 0) + 1

    return store


async def test_letters_that_two_redrive_at_once_are_run_once_and_gone(settings: Settings) -> None:
    entity_ids = ["u1", "u2", "u3"]
    async with shop(settings, broken=True) as store:
        for entity_id in entity_ids:
            await store.publish("buy", entity_id)
        await store.drain()
        first, second, third = [letter.id for letter in await store.dead_letters.list()]
    async with shop(settings, broken=False) as one, shop(settings, broken=False) as other:
        results = await asyncio.gather(
            one.dead_letters.redrive(first, second),
            other.dead_letters.redrive(second, third),
            return_exceptions=True,
        )
        # One that comes after the other's end finds its letter gone, and redrives none.
        assert all(isinstance(result, list | UnknownDeadLetterError) for result in results)
        assert any(isinstance(result, list) for result in results)
        await one.dead_letters.redrive(*[each.id for each in await one.dead_letters.list()])
        assert await one.dead_letters.list() == []
        await one.drain()
        rows = await one.get_features(["total"], entity_ids)
        assert [row["total"] for row in rows.values()] == [1, 1, 1]
