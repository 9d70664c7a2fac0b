"""Features are renamed and dropped with their values and their history."""

from __future__ import annotations

import asyncio

import pytest

from headwater import FeatureStore, ServiceEvent, Worker
from headwater.declarations.runtime import runtime_of
from headwater.errors import FeatureInUseError, InvalidInputError, UnknownNameError
from headwater.settings.schema import Settings
from tests.engine.support import until


def declare(settings: Settings, *names: str) -> FeatureStore:
    """Return a store with features of these names that add up amounts."""
    store = FeatureStore(settings=settings)

    @store.entity
    class User:
        user_id: str

    @store.entity
    class Page:
        page_id: str

    def add(name: str) -> None:
        @store.feature(User, name=name, trigger="purchase", default=0, max_retries=0)
        async def total(user_id: str, event: ServiceEvent) -> int:
            return int(await store.get_feature(name, user_id)) + int(event.payload["amount"])

    for name in names:
        add(name)
    return store


async def buy(store: FeatureStore, amount: int, user_id: str = "u1") -> None:
    await store.publish("purchase", user_id, {"amount": amount})
    await store.drain()


async def test_the_catalog_lists_features_that_no_file_declares_any_more(
    settings: Settings,
) -> None:
    async with declare(settings, "total", "spend") as old:
        await buy(old, 2)
        await old.catalog.rename("spend", "spent")
        listed = [(each.feature, each.is_declared) for each in await old.catalog.features()]
        assert listed == [("spent", True), ("total", True)]  # "spend" means "spent" here
    async with declare(settings, "spent") as new:
        spent, total = await new.catalog.features()
        assert (spent.feature, spent.entity, spent.is_declared) == ("spent", "User", True)
        assert (total.feature, total.versions, total.is_declared) == ("total", [1], False)
        await new.catalog.drop("total")
        assert [each.feature for each in await new.catalog.features()] == ["spent"]


async def test_a_renamed_feature_has_its_values_and_its_history_under_the_new_name(
    settings: Settings,
) -> None:
    async with declare(settings, "total") as old:
        await buy(old, 2)
        await old.catalog.rename("total", "spend")
        with pytest.raises(InvalidInputError, match="'total' was renamed to 'spend'"):
            await old.catalog.versions("total")
    async with declare(settings, "spend") as new:
        assert await new.get_feature("spend", "u1") == 2
        await buy(new, 3)
        past = await new.get_feature_history("spend", "u1")
        assert [each.value for each in past] == [5, 2]
        (version,) = await new.catalog.versions("spend")
        assert (version.state, version.series, version.online, version.history) == (
            *("active", "total"),
            *(1, 2),
        )
        assert (await new.admin.rebuild()).values == 1


async def test_an_old_name_that_is_declared_again_begins_without_values(
    settings: Settings,
) -> None:
    async with declare(settings, "total") as old:
        await buy(old, 2)
        await old.catalog.rename("total", "spend")
    async with declare(settings, "spend", "total") as both:
        assert await both.get_feature("total", "u1") == 0
        await buy(both, 3)
        row = (await both.get_features(["spend", "total"], ["u1"]))["u1"]
        assert row == {"spend": 5, "total": 3}


async def test_a_name_with_values_is_not_given_to_another_feature(settings: Settings) -> None:
    async with declare(settings, "total", "spend") as store:
        await buy(store, 2)
        with pytest.raises(InvalidInputError, match=r"'spend' exists already: .* both declared"):
            await store.catalog.rename("total", "spend")
    async with declare(settings, "total") as store:
        with pytest.raises(InvalidInputError, match=r"1 online, 1 in history.*features drop spend"):
            await store.catalog.rename("total", "spend")
        with pytest.raises(UnknownNameError, match="did you mean 'total'"):
            await store.catalog.rename("totl", "spend")


async def test_a_name_that_was_entered_without_values_can_be_given_to_another_feature(
    settings: Settings,
) -> None:
    async with declare(settings, "total") as old:
        await buy(old, 2)
    async with declare(settings, "spend") as new:
        await new.drain()  # a worker has run before the feature was renamed
        await new.catalog.rename("total", "spend")
        await buy(new, 3)
        assert await new.get_feature("spend", "u1") == 5


async def test_a_dropped_feature_loses_its_values_and_begins_again(settings: Settings) -> None:
    async with declare(settings, "total", "other") as store:
        await buy(store, 2)
        await buy(store, 2, "u2")
        dry = await store.catalog.drop("total", dry_run=True)
        assert (dry.online, dry.history) == (2, 2)
        assert await store.get_feature("total", "u1") == 2
        assert await store.catalog.drop("total") == dry
        assert await store.get_feature("total", "u1") == 0
        assert await store.get_feature_history("total", "u1") == []
        assert await store.get_feature("other", "u1") == 2
        await buy(store, 7)
        assert await store.get_feature("total", "u1") == 7
        assert (await store.admin.audit()).differences == []


async def test_a_feature_that_live_workers_run_is_not_dropped(settings: Settings) -> None:
    async with declare(settings, "total") as store:
        worker = Worker(store)
        running = asyncio.create_task(worker.run())

        async def is_registered() -> bool:
            group = settings.worker.consumer_group
            groups = (await runtime_of(store).open()).backends.groups
            return worker.name in await groups.declared(group)

        await until(is_registered)
        with pytest.raises(FeatureInUseError, match=r"run by live workers.*restart them"):
            await store.catalog.drop("total")
        worker.stop()
        await running
        await store.catalog.drop("total")


async def test_dead_letters_of_a_renamed_feature_are_found_and_run_under_its_new_name(
    settings: Settings,
) -> None:
    async with declare(settings, "total") as old:
        await old.publish("purchase", "u1", {})
        await old.drain()
        await old.catalog.rename("total", "spend")
    async with declare(settings, "spend") as new:
        (letter,) = await new.dead_letters.list(feature="spend")
        assert letter.feature == "spend"
        await new.dead_letters.redrive(letter.id)
        await new.drain()
        (again,) = await new.dead_letters.list()
        assert (again.feature, again.event.entity_id) == ("spend", "u1")
        assert "KeyError" in again.error
