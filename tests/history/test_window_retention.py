"""History is kept for as long as windows reach: their states are made of it."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest

from headwater import FeatureStore, Worker
from headwater.declarations.runtime import runtime_of
from headwater.doctor.examination import examine
from headwater.engine.auditing import audited
from headwater.errors import InvalidInputError
from headwater.history.retention import NightlyPruning, warn_of_pruned
from headwater.settings.groups import RetentionSettings
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.features.window_shop import DAY, HOUR, buy, declare, expected, served

pytestmark = pytest.mark.both_environments


@pytest.fixture(autouse=True)
def shop(store: FeatureStore) -> None:
    declare(store)


async def test_history_that_windows_need_is_not_pruned(
    store: FeatureStore, clock: ManualClock
) -> None:
    await buy(store, clock, 1.0)
    clock.advance(29 * DAY)
    for age in ("1d", timedelta(days=32) - timedelta(milliseconds=1)):
        with pytest.raises(InvalidInputError, match=r"windows of 'spend' .* keep it for 32d"):
            await store.admin.prune(history=age)
        with pytest.raises(InvalidInputError, match=r"windows of 'spend'"):
            await store.admin.prune(history=age, dry_run=True)
    await store.admin.prune(history="32d")
    await store.admin.prune(events="1d")
    assert (await served(store))["spend_sum_30d"] == 1.0


async def test_windows_that_are_made_again_after_pruning_are_the_same(
    store: FeatureStore, clock: ManualClock
) -> None:
    given = []
    for number in range(40):
        given.append((clock.now(), float(number + 1)))
        await buy(store, clock, float(number + 1))
        clock.advance(25 * HOUR)
    pruned = await store.admin.prune(history="32d")
    assert pruned.history is not None
    assert pruned.history.rows > 0
    await store.admin.rebuild()
    assert await served(store) == expected(given, clock.now())
    assert not (await store.admin.audit()).differences


async def test_the_nightly_run_refuses_to_prune_what_windows_need(
    store: FeatureStore, clock: ManualClock
) -> None:
    engine = await runtime_of(store).open()
    for age in ("7d", "1y"):
        nightly = NightlyPruning(
            engine.backends,
            engine.catalog,
            engine.registry,
            RetentionSettings(history=age),
            partial(audited, engine),
            is_by_month=False,
        )
        if age == "7d":
            with pytest.raises(InvalidInputError, match="cannot be kept for 7d only"):
                await nightly.run(clock.now())
        else:
            assert await nightly.run(clock.now()) is None


async def test_a_process_that_does_not_declare_the_windows_cannot_prune_history(
    store: FeatureStore, clock: ManualClock, settings: Settings
) -> None:
    await buy(store, clock, 1.0)
    async with FeatureStore(settings=settings, clock=clock) as other:
        for age in ("1d", "400d"):
            with pytest.raises(InvalidInputError, match=r"'spend', a family .* --file"):
                await other.admin.prune(history=age)
        await other.admin.prune(events="1d")


async def test_a_worker_does_not_start_with_a_retention_that_is_too_short(
    settings: Settings, clock: ManualClock
) -> None:
    store = FeatureStore(settings=settings.replace(retention={"history": "7d"}), clock=clock)
    declare(store)
    async with store:
        with pytest.raises(InvalidInputError, match="cannot be kept for 7d only"):
            await Worker(store).run()


async def test_a_worker_warns_of_a_window_that_reaches_back_before_pruned_history(
    store: FeatureStore,
    clock: ManualClock,
    settings: Settings,
    capsys: pytest.CaptureFixture[str],
) -> None:
    await buy(store, clock, 1.0)
    clock.advance(60 * DAY)
    await store.admin.prune(history="40d")
    longer = FeatureStore(settings=settings, clock=clock)
    declare(longer, windows=["1h", "90d"])
    async with longer:
        engine = await runtime_of(longer).open()
        capsys.readouterr()
        warn_of_pruned(engine.registry.features, engine.catalog.state, clock.now())
    assert "windows reach back before history was pruned" in capsys.readouterr().err


async def test_the_doctor_finds_a_retention_that_is_too_short(
    settings: Settings, clock: ManualClock
) -> None:
    store = FeatureStore(settings=settings.replace(retention={"history": "7d"}), clock=clock)
    declare(store)
    async with store:
        findings = (await examine(store)).findings
    (found,) = [finding for finding in findings if finding.check == "retention"]
    assert found.severity == "error"
    assert "'spend'" in found.found
    assert "32d" in found.remedy
