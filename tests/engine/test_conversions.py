"""Values of an earlier type are converted because of what wrote them, not of how they look."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headwater import FeatureStore, ServiceEvent, Worker
from headwater.declarations.features import Order
from headwater.declarations.runtime import runtime_of
from headwater.errors import DeclarationError, FeatureValueError, InvalidInputError
from headwater.settings.schema import Settings

pytestmark = pytest.mark.both_environments

START = datetime(2026, 1, 1, tzinfo=UTC)
LATER = datetime(2100, 1, 1, tzinfo=UTC)


def to_euros(cents: int) -> float:
    return cents / 100


def as_text(before: float) -> str:
    return f"{before:g}"


def declared(
    settings: Settings, kind: str = "euros", order: Order = "stream", annotation: object = None
) -> FeatureStore:
    """Return a store that keeps what a user spent: in cents, in euros, or in euros as text."""
    store = FeatureStore(settings=settings)

    @store.entity
    class User:
        user_id: str

    async def spent(user_id: str, event: ServiceEvent) -> object:
        before: Any = await store.get_feature("spent", user_id)
        if kind == "text":
            return f"{before} + {event.payload['amount']:g}"
        return before + event.payload["amount"]

    kinds: dict[str, tuple[object, Any, Any]] = {
        "cents": (int, 0, None),
        "euros": (float, 0.0, to_euros),
        "unconverted": (float, 0.0, None),
        "text": (str, "0", as_text),
    }
    declared_type, default, convert = kinds[kind]
    spent.__annotations__["return"] = annotation or declared_type
    store.feature(User, trigger="buy", default=default, convert=convert, order=order)(spent)
    return store


async def buy(store: FeatureStore, user_id: str, amount: float, hours: int = 0) -> None:
    await store.publish(
        "buy", user_id, {"amount": amount}, timestamp=START + timedelta(hours=hours)
    )


async def in_cents(settings: Settings, order: Order = "stream") -> None:
    """Let ada spend 12.50 in two steps, and bob 20.00."""
    async with declared(settings, "cents", order) as store:
        await buy(store, "ada", 1000, 1)
        await buy(store, "ada", 250, 2)
        await buy(store, "bob", 2000, 1)
        await store.drain()


async def past(store: FeatureStore, user_id: str, hours: float, **options: Any) -> Any:
    rows = [{"user_id": user_id, "timestamp": START + timedelta(hours=hours)}]
    return (await store.get_historical_features(rows, ["spent"], **options))[0]["spent"]


async def test_values_that_fit_the_new_type_are_converted_too(
    settings: Settings, tmp_path: Path
) -> None:
    await in_cents(settings)
    before = datetime.now(UTC)
    async with declared(settings) as store:
        # Before a worker has started, and after it.
        for _ in range(2):
            assert await store.get_feature("spent", "ada") == 12.5
            found = await store.get_features(["spent"], ["ada", "bob", "eve"])
            assert [row["spent"] for row in found.values()] == [12.5, 20.0, 0.0]
            (row,) = await store.get_feature_values(["spent"], ["bob"])
            assert row["spent"].value == 20.0
            await store.drain()
        await buy(store, "ada", 7.25, 3)
        await store.drain()
        assert await store.get_feature("spent", "ada") == 19.75
        history = await store.get_feature_history("spent", "ada")
        assert [each.value for each in history] == [19.75, 12.5, 10.0]
        assert [await past(store, "ada", each) for each in (0, 1, 2, 3)] == [0.0, 10.0, 12.5, 19.75]
        assert await past(store, "bob", 5) == 20.0
        # What was served in cents is given in euros.
        rows = [{"user_id": "ada", "timestamp": each} for each in (before, datetime.now(UTC))]
        known = await store.get_historical_features(rows, ["spent"], known=True)
        assert [row["spent"] for row in known] == [12.5, 19.75]
        await store.history.export(tmp_path / "exported")
        exported = str(tmp_path / "exported")
        assert await past(store, "ada", 2, exported=exported) == 12.5
        assert await past(store, "ada", 3, exported=exported) == 19.75
        assert (await store.admin.audit()).differences == []
        versions = await store.catalog.versions("spent")
        assert [(v.series, v.history) for v in versions] == [("spent", 3), ("spent@2", 1)]
        await store.admin.rebuild()
        assert await store.get_feature("spent", "bob") == 20.0
        assert (await store.admin.audit()).differences == []
        assert (await store.admin.forget("User", "ada", reason="asked")).history == 3
        assert await store.get_feature("spent", "ada") == 0.0


@pytest.mark.parametrize("default", ["none", None])
async def test_a_default_of_the_earlier_type_is_converted_only_where_it_was_served(
    settings: Settings, default: str | None
) -> None:
    def priced(annotation: object, default: object, convert: Any = None) -> FeatureStore:
        store = FeatureStore(settings=settings)

        @store.entity
        class User:
            user_id: str

        async def price(user_id: str, event: ServiceEvent) -> object:
            return event.payload["amount"]

        price.__annotations__["return"] = annotation
        store.feature(User, trigger="buy", default=default, convert=convert)(price)
        return store

    async with priced(int, 700) as store:
        await buy(store, "ada", 1250)
        await store.drain()
        before = datetime.now(UTC)
    moments = [before]
    async with priced(str, default, lambda cents: f"{cents / 100} EUR") as store:
        for _ in range(2):  # before a worker has converted the feature, and after
            found = await store.get_features(["price"], ["ada", "eve"])
            assert [row["price"] for row in found.values()] == ["12.5 EUR", default]
            moments.append(datetime.now(UTC))
            await store.drain()
    async with priced(str, "later", lambda cents: f"{cents / 100} EUR") as store:
        await store.drain()
        rows = [{"user_id": each, "timestamp": at} for at in moments for each in ("ada", "eve")]
        known = await store.get_historical_features(rows, ["price"], known=True)
        served = ["12.5 EUR", "7.0 EUR", *["12.5 EUR", default] * 2]
        assert [row["price"] for row in known] == served


@pytest.mark.parametrize(("order", "total"), [("stream", 13.5), ("event_time", 12.5)])
async def test_a_late_event_follows_the_converted_value_as_it_would_another(
    settings: Settings, order: Order, total: float
) -> None:
    await in_cents(settings, order)
    async with declared(settings, order=order) as store:
        await buy(store, "ada", 1.0)
        await store.drain()
        assert await store.get_feature("spent", "ada") == total
        assert (await store.admin.audit()).differences == []


async def test_what_was_converted_is_converted_once_when_the_type_changes_again(
    settings: Settings,
) -> None:
    await in_cents(settings)
    async with declared(settings) as store:
        await buy(store, "ada", 7.5, 3)
        await store.drain()
    # The same convert= says nothing about values that it has made.
    async with declared(settings, annotation=float | None) as store:
        await store.drain()
        assert await store.get_feature("spent", "ada") == 20.0
        assert await store.get_feature("spent", "bob") == 20.0
        assert len(await store.catalog.versions("spent")) == 2
    async with declared(settings, "text") as store:
        await store.drain()
        assert await store.get_feature("spent", "ada") == "20"
        assert await past(store, "ada", 3) == "20"
        await buy(store, "ada", 1, 4)
        await store.drain()
        assert await store.get_feature("spent", "ada") == "20 + 1"


async def test_a_process_of_the_earlier_type_neither_reads_nor_writes_what_was_converted(
    settings: Settings,
) -> None:
    await in_cents(settings)
    async with declared(settings, "cents") as old, declared(settings) as new:
        with pytest.raises(InvalidInputError, match="no worker has started that converts them"):
            await new.set_feature("spent", "ada", 5.0)
        await new.drain()
        await new.set_feature("spent", "ada", 5.0)
        await (await runtime_of(old).open()).catalog.follow()
        for use in (
            lambda: old.get_feature("spent", "ada"),
            lambda: old.set_feature("spent", "ada", 5),
            lambda: old.get_feature_history("spent", "ada"),
        ):
            with pytest.raises(FeatureValueError, match="has values of other types than int"):
                await use()
    async with declared(settings, "unconverted") as store:
        with pytest.raises(FeatureValueError, match=r"no convert= .* `headwater backfill spent`"):
            await Worker(store).run()


async def test_a_backfill_begins_with_the_converted_values(settings: Settings) -> None:
    await in_cents(settings)
    async with declared(settings) as store:
        await buy(store, "ada", 7.5, 4)
        await store.drain()
        since = START + timedelta(hours=3)
        await store.backfills.run("spent", since=since, switch=True)
        assert await store.get_feature("spent", "ada") == 20.0
        assert await store.get_feature("spent", "bob") == 20.0
        assert await past(store, "ada", 2) == 12.5


async def test_a_conversion_is_declared_before_the_store_is_opened(settings: Settings) -> None:
    async with declared(settings, "cents") as store:
        await store.drain()
        user = next(iter(runtime_of(store).registry.entities))
        assert user == "User"

        @store.entity
        class Shop:
            shop_id: str

        def late(shop_id: str, event: ServiceEvent) -> float:
            return 1.0

        with pytest.raises(DeclarationError, match="after the store was opened"):
            store.feature(Shop, trigger="buy", convert=to_euros)(late)
