"""Workers and readers follow the catalog: versions, switches and renamed features."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from conformance.suite import until
from headwater import FeatureStore, ServiceEvent, Worker
from headwater.core.clock import SystemClock
from headwater.declarations.runtime import runtime_of
from headwater.engine.engine import Engine
from headwater.history import versions
from headwater.history.backfill import steps
from headwater.model.catalog import BackfillState, CatalogState
from headwater.ports import Point
from headwater.settings.schema import Settings
from tests.engine.support import records

pytestmark = pytest.mark.both_environments
BACKFILL = BackfillState(id="b1", group="backfill-b1", main_group="headwater_workers")


def declare(settings: Settings, name: str = "total", *, added: bool = False) -> FeatureStore:
    """Return a store with a feature that adds up amounts, under this name, and perhaps another."""
    store = FeatureStore(settings=settings)

    @store.entity
    class User:
        user_id: str

    @store.feature(User, name=name, trigger="purchase", default=0)
    async def total(user_id: str, event: ServiceEvent) -> int:
        before: int = await store.get_feature(name, user_id)
        return before + int(event.payload["amount"])

    @store.feature(User, name="seen", trigger="purchase")
    async def seen(user_id: str, event: ServiceEvent) -> int:
        return int(await store.get_feature(name, user_id))

    def last(user_id: str, event: ServiceEvent) -> str:
        return event.event_type

    if added:
        store.feature(User, trigger=["purchase", "visit"])(last)
    return store


@asynccontextmanager
async def working(store: FeatureStore) -> AsyncIterator[Worker]:
    worker = Worker(store)
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await running


async def engine_of(store: FeatureStore) -> Engine:
    engine: Engine = await runtime_of(store).open()
    return engine


async def change(store: FeatureStore, transition: Callable[[CatalogState], CatalogState]) -> None:
    await (await engine_of(store)).catalog.change(transition)


async def cells(store: FeatureStore, entity_id: str = "u1") -> dict[str, Any]:
    """Return the stored values of an entity, by series."""
    (found,) = await (await engine_of(store)).backends.online.get("User", [entity_id])
    return {series: int(bytes(cell.value)) for series, cell in found.items()}


def add_ready(store: FeatureStore) -> Callable[[CatalogState], CatalogState]:
    """Return the change that adds a version as if its backfill were done."""
    feature = runtime_of(store).registry.feature("total")

    def add(state: CatalogState) -> CatalogState:
        state = versions.add_version(state, feature, {"total"}, SystemClock().now(), BACKFILL)
        entry = state.features["total"]
        ready = replace(entry.versions[-1], state="ready")
        return versions.with_entry(state, replace(entry, versions=[*entry.versions[:-1], ready]))

    return add


async def test_a_worker_enters_its_features_into_the_catalog(settings: Settings) -> None:
    async with declare(settings) as store:
        await store.drain()
        state = await (await engine_of(store)).backends.catalog.load()
        assert {name: entry.versions[0].type for name, entry in state.features.items()} == {
            "total": "int",
            "seen": "int",
        }
        assert state.revision == 2
        await store.drain()
        assert await (await engine_of(store)).backends.catalog.revision() == 2


async def test_a_running_worker_keeps_a_second_version_fresh_and_readers_follow_the_switch(
    settings: Settings,
) -> None:
    async with declare(settings) as store, declare(settings) as reading, working(store):
        await store.publish("purchase", "u1", {"amount": 2})

        async def first_is_there() -> bool:
            return bool(await reading.get_feature("total", "u1") == 2)

        await until(first_is_there)
        await change(reading, add_ready(reading))

        async def both_run() -> bool:
            await reading.publish("purchase", "u2", {"amount": 1})
            return "total@2" in await cells(reading, "u2")

        await until(both_run)
        await reading.publish("purchase", "u1", {"amount": 5})

        async def both_have_it() -> bool:
            return await cells(reading) == {"total": 7, "total@2": 5, "seen": 7}

        await until(both_have_it)
        await reading.set_feature("total", "u3", 40)
        assert await cells(reading, "u3") == {"total": 40, "total@2": 40}
        now = SystemClock().now()
        await change(reading, lambda state: steps.switched(state, "total", {"total"}, None, now))
        assert await reading.get_feature("total", "u1") == 5
        (row,) = await reading.get_feature_values(["total"], ["u1"])
        assert row["total"].value == 5
        [[past]] = await (await engine_of(reading)).backends.offline.as_of(
            ["total@2"], [Point("u1", SystemClock().now())]
        )
        assert past is not None

        async def others_follow() -> bool:
            return bool(await store.get_feature("total", "u1") == 5)

        await until(others_follow)


async def test_a_renamed_feature_keeps_its_values_while_workers_of_both_names_run(
    settings: Settings,
) -> None:
    async with declare(settings) as old, working(old):
        await old.publish("purchase", "u1", {"amount": 2})

        async def is_there() -> bool:
            return bool(await old.get_feature("total", "u1") == 2)

        await until(is_there)
        now = SystemClock().now()
        await change(old, lambda state: versions.rename(state, "total", "spend", now))
        assert await old.get_feature("total", "u1") == 2
        async with declare(settings, "spend") as new:
            assert await new.get_feature("spend", "u1") == 2
            async with working(new):
                await new.publish("purchase", "u1", {"amount": 5})

                async def is_added() -> bool:
                    return bool(await new.get_feature("spend", "u1") == 7)

                await until(is_added)
            assert await cells(new) == {"total": 7, "seen": 7}
            assert (await new.admin.audit()).differences == []
            state = await (await engine_of(new)).backends.catalog.load()
            assert set(state.features) == {"spend", "seen"}


async def test_a_feature_that_is_added_later_offers_a_backfill_of_its_past_events(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    async with declare(settings) as store:
        for amount in range(3):
            await store.publish("purchase", "u1", {"amount": amount})
        await store.publish("visit", "u1")
        async with working(store):

            async def is_done() -> bool:
                return bool(await store.get_feature("total", "u1") == 3)

            await until(is_done)
    assert records(capsys.readouterr().err, "feature has past events") == []
    async with declare(settings, added=True) as store:
        await store.publish("purchase", "u2", {"amount": 1})  # waits, so it is not past
        logged = ""
        async with working(store):

            async def is_offered() -> bool:
                nonlocal logged
                logged += capsys.readouterr().err
                return "feature has past events" in logged

            await until(is_offered)
    (offer,) = records(logged, "feature has past events")
    assert (offer["feature"], offer["events"]) == ("last", 4)
    assert offer["remedy"] == "4 past events; run `headwater backfill last`"
