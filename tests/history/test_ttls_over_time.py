"""A value counts for as long as the ttl with which it was written, also after that has changed."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from headwater import ContextItem, FeatureStore, ServiceEvent
from headwater.declarations.runtime import runtime_of
from headwater.history import versions
from headwater.model.catalog import CatalogState
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.features.test_reconcile import lose_online

pytestmark = pytest.mark.both_environments


class Served(NamedTuple):
    """What was served at a moment, and the record of a context of that moment."""

    moment: datetime
    values: tuple[Any, ...]
    context_id: str


def declared(
    settings: Settings, clock: ManualClock, ttl: str | None, name: str = "total", factor: int = 1
) -> FeatureStore:
    """Return a store with a feature that has a ttl, and others that are computed from it."""
    store = FeatureStore(settings=settings, clock=clock)

    @store.entity
    class User:
        user_id: str

    @store.feature(User, name=name, trigger="buy", default=0, ttl=ttl)
    def total(user_id: str, event: ServiceEvent) -> int:
        return factor * int(event.payload["amount"])

    @store.feature(User, derived=True)
    async def tier(user_id: str) -> str:
        return f"tier {await store.get_feature(name, user_id)}"

    @store.feature(User, template=f"line {{{name}}}")
    def line(user_id: str) -> str: ...  # type: ignore[empty-body]

    @store.feature(User, ttl=ttl or "1d")
    async def cached(user_id: str) -> str:
        return f"{await store.get_feature(name, user_id)} of {store.clock.now():%H:%M}"

    @store.context()
    async def page(user_id: str) -> list[ContextItem]:
        row = (await store.get_features([name, "tier", "line", "cached"], [user_id]))[user_id]
        return [ContextItem(" | ".join(map(str, row.values())))]

    return store


async def buy(store: FeatureStore, amount: int) -> None:
    await store.publish("buy", "u1", {"amount": amount})
    await store.drain()


async def serve(store: FeatureStore, clock: ManualClock, after: str) -> Served:
    """Record a context that reads the values, some time later."""
    clock.advance(after)
    context = await store.assemble("page", {"user_id": "u1"})
    served = Served(clock.now(), tuple(context.content.split(" | ")), context.context_id)
    clock.advance("1s")
    return served


async def known(
    store: FeatureStore, *served: Served, name: str = "total", **options: Any
) -> list[tuple[Any, ...]]:
    """Return the values that history knows of the moments."""
    names = [name, "tier", "line", "cached"]
    rows = [{"user_id": "u1", "timestamp": each.moment} for each in served]
    found = await store.get_historical_features(rows, names, known=True, **options)
    return [tuple(str(row[each]) for each in names) for row in found]


async def check(store: FeatureStore, *served: Served, name: str = "total") -> None:
    """Check that frames, replays and the audit give what was served."""
    assert await known(store, *served, name=name) == [each.values for each in served]
    for each in served:
        assert (await store.records.replay(each.context_id, "as_of")).matches
    report = (await store.admin.audit()).served
    assert report is not None
    assert (report.differences, report.not_compared) == ([], {})
    assert report.equal >= 4 * len(served)


def totals(*served: Served) -> list[str]:
    return [each.values[0] for each in served]


async def test_a_value_that_was_written_with_a_longer_ttl_is_known_for_as_long(
    settings: Settings, clock: ManualClock
) -> None:
    async with declared(settings, clock, None) as store:
        await buy(store, 5)
        first = await serve(store, clock, "1h")
    async with declared(settings, clock, "5m") as store:
        await store.drain()
        second = await serve(store, clock, "1h")
        await buy(store, 7)
        third = await serve(store, clock, "1m")
        fourth = await serve(store, clock, "1h")
        assert totals(first, second, third, fourth) == ["5", "5", "7", "0"]
        await check(store, first, second, third, fourth)


async def test_a_value_that_expired_stays_missing_after_the_ttl_was_made_longer(
    settings: Settings, clock: ManualClock
) -> None:
    async with declared(settings, clock, "5m") as store:
        await buy(store, 5)
        first = await serve(store, clock, "1m")
        second = await serve(store, clock, "1h")
    async with declared(settings, clock, "2h") as store:
        await store.drain()
        third = await serve(store, clock, "1m")
        await buy(store, 7)
        fourth = await serve(store, clock, "1h")
    async with declared(settings, clock, None) as store:
        await store.drain()
        fifth = await serve(store, clock, "2h")
        assert totals(first, second, third, fourth, fifth) == ["5", "0", "0", "7", "0"]
        await check(store, first, second, third, fourth, fifth)


async def test_a_ttl_that_no_worker_has_recorded_is_known_too(
    settings: Settings, clock: ManualClock
) -> None:
    async with declared(settings, clock, None) as store:
        await store.set_feature("total", "u1", 5)
        first = await serve(store, clock, "1h")
    async with declared(settings, clock, "5m") as store:
        await store.set_feature("total", "u1", 7)
        second = await serve(store, clock, "1m")
        third = await serve(store, clock, "1h")
        assert totals(first, second, third) == ["5", "7", "0"]
        await check(store, first, second, third)


async def test_an_export_knows_the_ttls_that_values_were_written_with(
    settings: Settings, clock: ManualClock, tmp_path: Path
) -> None:
    async with declared(settings, clock, None) as store:
        await buy(store, 5)
        first = await serve(store, clock, "1h")
    async with declared(settings, clock, "5m") as store:
        await buy(store, 7)
        second = await serve(store, clock, "1h")
        await store.history.export(tmp_path / "export")
        found = await known(store, first, second, exported=tmp_path / "export")
        assert found == [first.values, second.values]
    closed = declared(settings, clock, "1m")
    rows = [{"user_id": "u1", "timestamp": each.moment} for each in (first, second)]
    found = await closed.get_historical_features(
        rows, ["total"], known=True, exported=tmp_path / "export"
    )
    assert [row["total"] for row in found] == [5, 0]


async def test_a_renamed_feature_keeps_the_ttls_of_before(
    settings: Settings, clock: ManualClock
) -> None:
    async with declared(settings, clock, None) as store:
        await buy(store, 5)
        first = await serve(store, clock, "1h")
        await store.catalog.rename("total", "spend")
    async with declared(settings, clock, "5m", "spend") as store:
        await buy(store, 7)
        second = await serve(store, clock, "1h")
        assert totals(first, second) == ["5", "0"]
        await check(store, first, second, name="spend")


async def test_versions_of_a_backfill_know_the_ttls_of_before(
    settings: Settings, clock: ManualClock
) -> None:
    async with declared(settings, clock, None) as store:
        await buy(store, 5)
        first = await serve(store, clock, "1h")
    async with declared(settings, clock, "5m", factor=10) as store:
        await store.drain()
        await store.backfills.run("total", since=clock.now(), switch=True)
        second = await serve(store, clock, "1h")
        await buy(store, 7)
        third = await serve(store, clock, "1m")
        fourth = await serve(store, clock, "1h")
        assert totals(first, second, third, fourth) == ["5", "5", "70", "0"]
        await check(store, first, second, third, fourth)


async def test_a_rebuild_restores_values_for_as_long_as_they_were_written_for(
    settings: Settings, clock: ManualClock
) -> None:
    async with declared(settings, clock, None) as store:
        await buy(store, 5)
    clock.advance("1h")
    async with declared(settings, clock, "5m") as store:
        await store.drain()
        assert (await store.admin.audit()).differences == []
        await lose_online(store, "u1")
        assert await store.get_feature("total", "u1") == 0
        (difference,) = (await store.admin.audit()).differences
        assert difference.feature == "total"
        await store.admin.rebuild()
        assert await store.get_feature("total", "u1") == 5


async def test_values_of_before_ttls_were_recorded_have_the_declared_one(
    settings: Settings, clock: ManualClock
) -> None:
    def forget(state: CatalogState) -> CatalogState:
        entry = replace(state.features["total"], lifetimes=[])
        return versions.with_entry(state, entry)

    async with declared(settings, clock, None) as store:
        await buy(store, 5)
        first = await serve(store, clock, "1h")
        await (await runtime_of(store).open()).catalog.change(forget)
    async with declared(settings, clock, "5m") as store:
        assert (await known(store, first))[0][0] == "0"
        await buy(store, 7)
        second = await serve(store, clock, "1m")
    async with declared(settings, clock, "1m") as store:
        await store.drain()
        found = await known(store, first, second)
        assert [row[0] for row in found] == ["0", "7"]
