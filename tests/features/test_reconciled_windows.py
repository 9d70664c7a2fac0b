"""Windows can be made again from history, and compared with it."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

from headwater import FeatureStore, Worker
from headwater.declarations.runtime import runtime_of
from headwater.testing import ManualClock
from tests.features.test_reconcile import lose_history, lose_online
from tests.features.window_shop import DAY, HOUR, buy, declare, expected, served

pytestmark = pytest.mark.both_environments


@pytest.fixture(autouse=True)
def shop(store: FeatureStore) -> None:
    declare(store)


async def test_rebuild_makes_the_windows_of_all_entities_again(
    store: FeatureStore, clock: ManualClock
) -> None:
    given = [(2.0, 20 * DAY), (3.0, 2 * DAY), (5.0, 2 * HOUR), (7.0, HOUR / 4), (7.0, HOUR / 4)]
    now = clock.now()
    for amount, ago in given:
        await buy(store, clock, amount, ago)
        await buy(store, clock, 2 * amount, ago, "u2")
    await lose_online(store, "u1", "u2")
    assert (await served(store))["spend_count_30d"] == 0
    report = await store.admin.rebuild()
    assert (report.entity_ids, report.values) == (2, 4)
    assert await served(store) == expected([(now - ago, x) for x, ago in given], clock.now())
    assert await served(store, "u2") == expected(
        [(now - ago, 2 * x) for x, ago in given], clock.now()
    )
    await buy(store, clock, 11.0, HOUR / 2)
    more = [*((now - ago, amount) for amount, ago in given), (now - HOUR / 2, 11.0)]
    assert await served(store) == expected(more, clock.now())


async def test_an_audit_finds_no_difference_while_windows_move(
    store: FeatureStore, clock: ManualClock
) -> None:
    for number in range(20):
        await buy(store, clock, float(number), user_id=f"u{number % 3}")
        clock.advance(timedelta(hours=9))
    report = await store.admin.audit()
    assert (list(report.differences), report.entity_ids, report.values) == ([], 3, 6)


async def test_an_audit_names_the_features_whose_values_differ(
    store: FeatureStore, clock: ManualClock
) -> None:
    await buy(store, clock, 3.0, 2 * HOUR)
    await buy(store, clock, 4.0)
    await buy(store, clock, 4.0, user_id="u2")
    lost = "entity_id = 'u1' AND feature = 'spend' AND CAST(value AS TEXT) = '4.0'"
    await lose_history(store, lost)
    found = {d.feature: d for d in (await store.admin.audit()).differences}
    assert set(found) == {
        f"spend_{aggregate}_{window}"
        for aggregate in ("count", "sum", "last3")
        for window in ("1h", "7d", "30d")
    }
    wrong = found["spend_sum_7d"]
    assert wrong.entity_id == "u1"
    assert wrong.online is not None
    assert wrong.history is not None
    assert [msgspec.json.decode(one.value) for one in (wrong.online, wrong.history)] == [7.0, 3.0]
    await store.admin.rebuild()
    assert not (await store.admin.audit()).differences
    assert (await served(store))["spend_sum_7d"] == 3.0


async def test_a_state_of_other_windows_is_no_difference(
    store: FeatureStore, clock: ManualClock
) -> None:
    await buy(store, clock, 3.0)
    other = FeatureStore(settings=store.settings, clock=clock)
    declare(other, windows=["2h"])
    async with other:
        assert not (await other.admin.audit()).differences
        assert (await other.get_features(["spend_sum_2h"], ["u1"]))["u1"]["spend_sum_2h"] == 3.0


async def test_a_window_that_was_lost_online_is_a_difference(
    store: FeatureStore, clock: ManualClock
) -> None:
    await buy(store, clock, 3.0)
    engine = await runtime_of(store).open()
    (cells,) = await engine.backends.online.get("User", ["u1"])
    await engine.backends.online.replace("User", "spend", {"u1": (cells["spend"], None)})
    differences = (await store.admin.audit()).differences
    assert {d.feature.split("_")[0] for d in differences} == {"spend"}
    assert all(d.online is None for d in differences)


async def test_windows_are_made_again_while_a_worker_folds(
    store: FeatureStore, clock: ManualClock
) -> None:
    worker = Worker(store)
    running = asyncio.create_task(worker.run())
    given = []
    try:
        for number in range(40):
            at = clock.now() - number * 13 * HOUR
            given.append((at, float(number)))
            for user_id in ("u1", "u2"):
                await store.publish("buy", user_id, {"amount": number}, timestamp=at)
            if number % 4 == 0:
                await store.admin.rebuild()
    finally:
        worker.stop()
        await running
    await store.drain()
    counted = [(at, amount) for at, amount in given if amount]  # 0 contributes nothing
    for user_id in ("u1", "u2"):
        assert await served(store, user_id) == expected(counted, clock.now())
    assert not (await store.admin.audit()).differences
