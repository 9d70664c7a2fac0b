"""A changed return type is converted or computed again, and never fails silently."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from headwater import FeatureStore, ServiceEvent, Worker
from headwater.declarations.runtime import runtime_of
from headwater.errors import DeclarationError, FeatureValueError, TypeChangedError
from headwater.history import versions
from headwater.model.catalog import BackfillState
from headwater.settings.schema import Settings
from tests.engine.support import records

Convert = Callable[[Any], Any]


def declare(settings: Settings, annotation: object, convert: Convert | None = None) -> FeatureStore:
    """Return a store whose feature keeps the last amount, in this type."""
    store = FeatureStore(settings=settings)

    @store.entity
    class User:
        user_id: str

    async def last(user_id: str, event: ServiceEvent) -> object:
        await store.get_feature("last", user_id)
        return event.payload["amount"]

    last.__annotations__["return"] = annotation
    store.feature(User, trigger="purchase", max_retries=0, convert=convert)(last)
    return store


async def buy(store: FeatureStore, amount: object, user_id: str = "u1") -> None:
    await store.publish("purchase", user_id, {"amount": amount})
    await store.drain()


def to_text(value: int) -> str:
    return f"{value} EUR"


@pytest.mark.both_environments
async def test_a_worker_refuses_values_of_the_old_type_and_names_the_remedies(
    settings: Settings,
) -> None:
    async with declare(settings, int) as store:
        await buy(store, 5)
    async with declare(settings, str) as store:
        with pytest.raises(TypeChangedError) as refused:
            await Worker(store).run()
        for part in ("'last'", "int", "'5'", "str", "annotation back", "convert=", "backfill last"):
            assert part in str(refused.value)
        with pytest.raises(TypeChangedError):
            await store.drain()
        with pytest.raises(FeatureValueError, match="stored as 5, which is not str"):
            await store.get_feature("last", "u1")
    async with declare(settings, int) as store:
        assert await store.get_feature("last", "u1") == 5
        (version,) = await store.catalog.versions("last")
        assert (version.type, version.state) == ("int", "active")


@pytest.mark.both_environments
async def test_values_of_the_old_type_are_converted_wherever_they_are_read(
    settings: Settings,
) -> None:
    async with declare(settings, int) as store:
        await buy(store, 5)
        await buy(store, 6, "u2")
    async with declare(settings, str, to_text) as store:
        await buy(store, "7 USD", "u2")
        assert await store.get_feature("last", "u1") == "5 EUR"
        found = await store.get_features(["last"], ["u1", "u2"])
        assert found == {"u1": {"last": "5 EUR"}, "u2": {"last": "7 USD"}}
        (row,) = await store.get_feature_values(["last"], ["u1"])
        assert row["last"].value == "5 EUR"
        past = await store.get_feature_history("last", "u2")
        assert [each.value for each in past] == ["7 USD", "6 EUR"]
        assert (await store.admin.audit()).differences == []
        listed = [
            (v.version, v.type, v.state, v.series) for v in await store.catalog.versions("last")
        ]
        assert listed == [(1, "int", "retired", "last"), (2, "str", "active", "last@2")]


async def test_a_type_that_all_values_fit_is_noted_and_stays_the_same_version(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    async with declare(settings, int) as store:
        await buy(store, 5)
    for _ in range(2):
        async with declare(settings, float) as store:
            await store.drain()
            assert await store.get_feature("last", "u1") == 5.0
            (version,) = await store.catalog.versions("last")
            assert (version.version, version.type) == (1, "float")
    (noted,) = records(capsys.readouterr().err, "feature has another type")
    assert (noted["before"], noted["now"]) == ("int", "float")


@pytest.mark.parametrize(
    ("convert", "problem"),
    [
        (lambda value: value.upper(), "was stored as 5, which convert= cannot convert to str"),
        (lambda value: value, "was stored as 5, which convert= converts to 5, and that is not str"),
    ],
)
async def test_a_conversion_that_fails_names_the_feature_and_the_value(
    settings: Settings, convert: Convert, problem: str
) -> None:
    async with declare(settings, int) as store:
        await buy(store, 5)
    async with declare(settings, str, convert) as store:
        with pytest.raises(FeatureValueError, match=problem) as failed:
            await store.drain()
        assert "'last'" in str(failed.value)
        with pytest.raises(FeatureValueError, match=problem):
            await store.get_feature("last", "u1")


async def test_workers_with_the_old_type_wait_for_those_that_convert(settings: Settings) -> None:
    async with declare(settings, int) as old, declare(settings, str, to_text) as new:
        await buy(old, 5)
        await buy(new, "6 USD")
        engine = await runtime_of(old).open()
        await engine.catalog.follow()
        assert engine.registry.running(settings.worker.consumer_group) == {"last": ()}


async def test_workers_of_the_older_type_run_on_after_a_type_that_all_values_fit(
    settings: Settings,
) -> None:
    group = settings.worker.consumer_group
    async with declare(settings, int) as old:
        await buy(old, 5)
        await old.backfills.run("last", switch=True)
        await buy(old, 6)
        async with declare(settings, float) as new:
            await new.drain()
            assert (await new.catalog.versions("last"))[-1].type == "float"
        engine = await runtime_of(old).open()
        await engine.catalog.follow()
        assert "last@2" in {each.series for each in engine.registry.running(group)["last"]}
        await buy(old, 8)
        assert await old.get_feature("last", "u1") == 8


async def test_a_worker_starts_while_a_backfill_makes_a_version_of_the_declared_type(
    settings: Settings,
) -> None:
    async with declare(settings, int) as store:
        await buy(store, 5)
    async with declare(settings, str) as store:
        engine = await runtime_of(store).open()
        feature, now = engine.registry.feature("last"), engine.clock.now()
        group = settings.worker.consumer_group
        backfill = BackfillState(id="b1", group="backfill-b1", main_group=group)
        await engine.catalog.change(
            lambda state: versions.add_version(state, feature, {"last"}, now, backfill)
        )
        await buy(store, "6")
        await engine.catalog.change(
            lambda state: versions.change_version(
                state, "last@2", lambda version: replace(version, state="ready")
            )
        )
        await buy(store, "7")
        assert await store.dead_letters.list() == []
        (cells,) = await engine.backends.online.get("User", ["u1"])
        assert {series: bytes(cell.value) for series, cell in cells.items()} == {
            "last": b"5",
            "last@2": b'"7"',
        }


async def _convert(value: object) -> str:
    return await asyncio.sleep(0, str(value))


@pytest.mark.parametrize(
    ("convert", "problem"),
    [
        ("int", "convert must be a function that takes the old value, not async"),
        (_convert, "convert must be a function that takes the old value, not async"),
        (lambda: 1, "convert must take one argument, the old value"),
    ],
)
def test_a_conversion_is_checked_when_it_is_declared(convert: Any, problem: str) -> None:
    with pytest.raises(DeclarationError, match=problem):
        declare(Settings(), str, convert)


def test_a_conversion_needs_stored_values() -> None:
    store = FeatureStore(settings=Settings())

    @store.entity
    class User:
        user_id: str

    def last(user_id: str) -> str:
        return user_id

    with pytest.raises(DeclarationError, match="convert needs stored values"):
        store.feature(User, convert=to_text)(last)
