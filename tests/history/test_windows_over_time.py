"""Windows that were served are known for their moment, also after switches and new defaults."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headwater import FeatureStore, ServiceEvent
from headwater.errors import InvalidInputError
from headwater.settings.schema import Settings
from headwater.testing import ManualClock

pytestmark = pytest.mark.both_environments

NAMES = ["spend_sum_1h", "spend_max_1h", "line"]


def declared(
    settings: Settings, clock: ManualClock, factor: int = 1, default: int = -1
) -> FeatureStore:
    store = FeatureStore(settings=settings, clock=clock)

    @store.entity
    class User:
        user_id: str

    @store.feature(
        User, trigger="buy", window=["1h", "1d"], aggregate=["sum", "max"], default=default
    )
    def spend(user_id: str, event: ServiceEvent) -> int:
        return factor * int(event.payload["amount"])

    @store.feature(User, template="{spend_sum_1d} and {spend_max_1h}")
    def line(user_id: str) -> str: ...  # type: ignore[empty-body]

    return store


async def note(store: FeatureStore, clock: ManualClock, rows: list[dict[str, Any]]) -> None:
    """Note what is served now."""
    clock.advance("1m")
    for user_id, values in (await store.get_features(NAMES, ["u0", "u1"])).items():
        rows.append({"user_id": user_id, "timestamp": clock.now(), **values})
    clock.advance("1m")


async def buy(store: FeatureStore, clock: ManualClock, amount: int) -> None:
    await store.publish("buy", "u0", {"amount": amount}, timestamp=clock.now())
    await store.drain()


async def test_each_version_and_default_is_known_at_the_moments_at_which_it_was_served(
    settings: Settings, clock: ManualClock, tmp_path: Path
) -> None:
    rows: list[dict[str, Any]] = []
    async with declared(settings, clock) as store:
        await note(store, clock, rows)
        for amount in (3, 5):
            await buy(store, clock, amount)
            await note(store, clock, rows)
    async with declared(settings, clock, factor=10) as store:
        await note(store, clock, rows)
        await store.backfills.run("spend")
        await note(store, clock, rows)
        await store.backfills.switch("spend")
        await note(store, clock, rows)
        await buy(store, clock, 7)
        await note(store, clock, rows)
    async with declared(settings, clock, factor=10, default=-2) as store:
        await store.drain()  # a worker enters the default
        await note(store, clock, rows)
        clock.advance(timedelta(hours=2))
        await note(store, clock, rows)
        assert {row["spend_max_1h"] for row in rows} == {-1, 3, 5, 50, 70, -2}
        frame = [{"user_id": row["user_id"], "timestamp": row["timestamp"]} for row in rows]
        assert await store.get_historical_features(frame, NAMES, known=True) == rows
        # As they were true, all values are of the present version.
        true = await store.get_historical_features(frame, NAMES)
        assert [row["spend_sum_1h"] for row in true[:6:2]] == [0, 30, 80]
        await store.history.export(tmp_path / "export")
        options: dict[str, Any] = {"known": True, "exported": tmp_path / "export"}
        assert await store.get_historical_features(frame, NAMES[:2], **options) == [
            {name: value for name, value in row.items() if name != "line"} for row in rows
        ]


async def test_rows_of_a_version_that_was_dropped_are_refused(
    settings: Settings, clock: ManualClock
) -> None:
    async with declared(settings, clock) as store:
        await buy(store, clock, 3)
        early = clock.now()
        clock.advance("1m")
        await store.backfills.run("spend")
        await store.backfills.switch("spend")
        clock.advance("1m")
        await store.catalog.drop("spend", version=1)
        frame = [{"user_id": "u0", "timestamp": early}]
        with pytest.raises(InvalidInputError, match=r"version 1 of feature .* was dropped"):
            await store.get_historical_features(frame, ["spend_sum_1h"], known=True)


@pytest.mark.parametrize("is_to_windows", [True, False])
async def test_nothing_was_known_while_the_name_meant_another_kind_of_feature(
    settings: Settings, clock: ManualClock, *, is_to_windows: bool
) -> None:
    def shop(*, has_windows: bool) -> FeatureStore:
        store = FeatureStore(settings=settings, clock=clock)

        @store.entity
        class User:
            user_id: str

        options: dict[str, Any] = {"window": "1h", "aggregate": "sum"} if has_windows else {}

        @store.feature(User, trigger="buy", **options)
        def spend(user_id: str, event: ServiceEvent) -> int:
            return int(event.payload["amount"])

        return store

    async with shop(has_windows=not is_to_windows) as store:
        await buy(store, clock, 3)
        early = clock.now()
        clock.advance("1m")
    async with shop(has_windows=is_to_windows) as store:
        await store.backfills.run("spend")
        await store.backfills.switch("spend")
        clock.advance("1m")
        frame = [{"user_id": "u0", "timestamp": at} for at in (early, clock.now())]
        name, nothing = ("spend_sum_1h", 0) if is_to_windows else ("spend", None)
        known = await store.get_historical_features(frame, [name], known=True)
        assert [row[name] for row in known] == [nothing, 3]
        true = await store.get_historical_features(frame, [name])
        assert [row[name] for row in true] == [3, 3]
