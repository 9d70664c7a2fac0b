"""Of values of one moment, history serves the one that is online."""

from __future__ import annotations

import asyncio

from headwater import FeatureStore, ServiceEvent, feature
from headwater.declarations.runtime import runtime_of


async def test_a_handler_that_began_before_the_value_it_replaces_was_written_counts_as_later(
    store: FeatureStore, user: type
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @feature(entity=user, trigger="coin")
    async def coins(user_id: str, event: ServiceEvent) -> int:
        begun.set()
        await go_on.wait()
        await store.set_feature("coins", "pot", (await store.get_feature("coins", "pot")) + 1)
        return 1

    await store.publish("coin", "u1")
    drained = asyncio.create_task(store.drain())
    await begun.wait()
    await store.set_feature("coins", "pot", 5)
    go_on.set()
    await drained
    assert await store.get_feature("coins", "pot") == 6
    engine = await runtime_of(store).open()
    latest = dict(await engine.backends.offline.latest("User", after="", limit=10))
    assert latest["pot"]["coins"].value == b"6"
