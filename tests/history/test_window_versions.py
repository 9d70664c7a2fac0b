"""Changes of declarations: other windows need no new version, other kinds of values do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headwater import FeatureStore, ServiceEvent, Worker, entity, feature
from headwater.errors import (
    FeatureValueError,
    HeadwaterError,
    InvalidInputError,
    TypeChangedError,
)
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.features.window_shop import DAY, HOUR

pytestmark = pytest.mark.both_environments


@asynccontextmanager
async def shop(
    settings: Settings,
    clock: ManualClock,
    windows: Sequence[str] | None = ("1h", "7d"),
    aggregates: Sequence[str] = ("count", "sum"),
    *,
    kind: type = float,
    **options: Any,
) -> AsyncIterator[FeatureStore]:
    """Open a store in which ``spend`` has windows, or without them is the last amount."""
    store = FeatureStore(settings=settings, clock=clock)

    @entity(store)
    class User:
        user_id: str

    def spend(user_id: str, event: ServiceEvent) -> Any:
        return kind(event.payload["amount"])

    spend.__annotations__["return"] = kind
    if windows is not None:
        options |= {"window": windows, "aggregate": aggregates}
    feature(entity=User, trigger="buy", **options)(spend)
    async with store:
        yield store


async def buy(store: FeatureStore, clock: ManualClock, amount: float, ago: Any = DAY * 0) -> None:
    await store.publish("buy", "u1", {"amount": amount}, timestamp=clock.now() - ago)
    await store.drain()


async def states(store: FeatureStore) -> list[str]:
    return [version.state for version in await store.catalog.versions("spend")]


async def test_other_windows_aggregates_and_hops_are_no_new_version(
    settings: Settings, clock: ManualClock
) -> None:
    async with shop(settings, clock) as store:
        await buy(store, clock, 1.0, 20 * DAY)
        await buy(store, clock, 2.0, 3 * DAY)
        await buy(store, clock, 4.0, HOUR / 2)
    async with shop(settings, clock, ["2h", "30d"], ["sum", "max"]) as store:
        assert await store.get_feature("spend_sum_30d", "u1") == 7.0
        await buy(store, clock, 8.0, 2 * DAY)
        assert await store.get_feature("spend_max_30d", "u1") == 8.0
        assert await store.get_feature("spend_sum_2h", "u1") == 4.0
        assert await states(store) == ["active"]
        assert not (await store.admin.audit()).differences
    async with shop(settings, clock, ["7d"], ["sum"], hop="1d") as store:
        await store.drain()
        assert await store.get_feature("spend_sum_7d", "u1") == 14.0
        assert await states(store) == ["active"]
        assert not (await store.admin.audit()).differences


@pytest.mark.parametrize("is_to_windows", [True, False])
async def test_a_feature_that_becomes_a_family_or_the_other_way_round_is_refused(
    settings: Settings, clock: ManualClock, *, is_to_windows: bool
) -> None:
    before, now = (None, ("1h",)) if is_to_windows else (("1h",), None)
    async with shop(settings, clock, before, ("count", "sum")) as store:
        await buy(store, clock, 5.0)
        await buy(store, clock, 6.0)
    name = "spend_sum_1h" if is_to_windows else "spend"
    async with shop(settings, clock, now) as store:
        with pytest.raises(TypeChangedError, match="contribution of float") as refused:
            await Worker(store).run()
        assert "headwater backfill spend" in str(refused.value)
        assert "convert=" not in str(refused.value)
        for read in (store.get_feature(name, "u1"), store.admin.audit(), store.admin.rebuild()):
            with pytest.raises(FeatureValueError, match=r"windows when .* `headwater backfill spe"):
                await read
        await store.backfills.run("spend")
        comparison = await store.backfills.compare("spend")
        assert comparison.online.different == 1
        await store.backfills.switch("spend")
        assert await store.get_feature(name, "u1") == (11.0 if is_to_windows else 6.0)
        await buy(store, clock, 7.0)
        assert await store.get_feature(name, "u1") == (18.0 if is_to_windows else 7.0)
        assert not (await store.admin.audit()).differences


async def test_a_contribution_of_another_type_is_compared_with_contributions(
    settings: Settings, clock: ManualClock
) -> None:
    async with shop(settings, clock, kind=int) as store:
        await buy(store, clock, 5)
    async with shop(settings, clock, kind=float) as store:
        await buy(store, clock, 1.5)
        assert await store.get_feature("spend_sum_1h", "u1") == 6.5
        assert await states(store) == ["active"]
    async with shop(settings, clock, kind=str, aggregates=["count"]) as store:
        with pytest.raises(TypeChangedError, match="give it another name"):
            await store.drain()


async def test_a_renamed_family_keeps_its_contributions(
    settings: Settings, clock: ManualClock
) -> None:
    async with shop(settings, clock) as store:
        await buy(store, clock, 5.0)
        await store.catalog.rename("spend", "outlay")
    async with shop(settings, clock, name="outlay") as store:
        await buy(store, clock, 6.0)
        assert await store.get_feature("outlay_sum_1h", "u1") == 11.0
        assert not (await store.admin.audit()).differences


async def test_a_dropped_family_has_no_contributions_left(
    settings: Settings, clock: ManualClock
) -> None:
    async with shop(settings, clock) as store:
        await buy(store, clock, 5.0)
    other = FeatureStore(settings=settings, clock=clock)

    @entity(other)
    class User:
        user_id: str

    async with other:
        await other.catalog.drop("spend")
    async with shop(settings, clock) as store:
        assert await store.get_feature("spend_sum_1h", "u1") == 0.0
        await buy(store, clock, 6.0)
        assert await store.get_feature("spend_sum_1h", "u1") == 6.0


async def test_what_concerns_a_family_is_refused_for_its_features_and_names_it(
    settings: Settings, clock: ManualClock
) -> None:
    async with shop(settings, clock) as store:
        catalog, backfills = store.catalog, store.backfills
        for call in (
            catalog.versions("spend_sum_1h"),
            catalog.rename("spend_sum_1h", "spent"),
            catalog.drop("spend_sum_1h"),
            backfills.run("spend_sum_1h"),
        ):
            with pytest.raises(HeadwaterError, match="contributions of 'spend'"):
                await call
        for name in ("spend", "spend_sum_1h"):
            with pytest.raises(InvalidInputError, match="contribute to 'spend' and cannot be set"):
                await store.set_feature(name, "u1", 1.0)
        await buy(store, clock, 2.0)
        assert await store.get_feature("spend_sum_1h", "u1") == 2.0
