"""Backfills: a new version of a feature is computed from past events, and then served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from headwater import FeatureStore, ServiceEvent, Worker, entity, feature
from headwater.settings.schema import Settings
from tests.engine.support import until

pytestmark = pytest.mark.both_environments

USERS = 5


def declared(settings: Settings, *, is_new: bool = False) -> FeatureStore:
    """Return a store with a feature that keeps the ids of events; the new function marks them."""
    store = FeatureStore(settings=settings)

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="buy", default=[])
    async def seen(user_id: str, event: ServiceEvent) -> list[str]:
        mark = "new " if is_new else ""
        return [*await store.get_feature("seen", user_id), mark + event.event_id]

    return store


@pytest.fixture
async def store(settings: Settings) -> AsyncIterator[FeatureStore]:
    """Yield a store with the new function, after the old one has run for two events per user."""
    async with declared(settings) as old:
        await publish(old, "a", "b")
        await Worker(old).drain()
    async with declared(settings, is_new=True) as new:
        yield new


async def publish(store: FeatureStore, *names: str) -> None:
    """Publish events of every user."""
    for name in names:
        for number in range(USERS):
            await store.publish("buy", f"u{number}", {}, event_id=f"{name}{number}")


async def values(store: FeatureStore) -> Mapping[str, list[str]]:
    rows = await store.get_features(["seen"], [f"u{number}" for number in range(USERS)])
    return {entity_id: row["seen"] for entity_id, row in rows.items()}


def expected(*names: str) -> Mapping[str, list[str]]:
    """Return the values that events of these names give; "new a" is a, marked."""
    return {f"u{number}": [f"{name}{number}" for name in names] for number in range(USERS)}


@asynccontextmanager
async def working(store: FeatureStore) -> AsyncIterator[Worker]:
    worker = Worker(store)
    task = asyncio.create_task(worker.run())
    try:
        await until(lambda: worker.health().ok)
        yield worker
    finally:
        worker.stop()
        await task


async def test_a_backfill_of_a_stopped_store_makes_a_version_that_is_served_after_the_switch(
    store: FeatureStore,
) -> None:
    report = await store.backfills.run("seen")
    assert (report.version, report.is_served) == (2, False)
    assert report.replayed is not None
    assert report.replayed.events == 2 * USERS
    assert await values(store) == expected("a", "b")
    await publish(store, "c")
    await Worker(store).drain()
    assert await values(store) == expected("a", "b", "new c")
    await store.backfills.switch("seen")
    assert await values(store) == expected("new a", "new b", "new c")
    groups = [group.name for group in await store.admin.groups()]
    assert groups == [store.settings.worker.consumer_group]
