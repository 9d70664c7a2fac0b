"""Pruning that fails or is interrupted is noticed, and repeated."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from headwater import FeatureStore, ServiceEvent, feature
from headwater.errors import BackendError
from headwater.model.admin import PrunedPart
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.engine.support import past
from tests.history.test_retention import DAY, backends_of, nightly


@pytest.fixture(autouse=True)
def bought(store: FeatureStore, user: type) -> None:
    @feature(entity=user, trigger="buy", default=0)
    def bought(user_id: str, event: ServiceEvent) -> int:
        return 1


@pytest.fixture
def settings(home: Path) -> Settings:
    return Settings().replace(home=home)


async def write_daily(store: FeatureStore, clock: ManualClock) -> None:
    for number in range(3):
        await store.set_feature("bought", "u1", number)
        clock.advance(DAY)


async def test_the_moment_is_stored_before_the_first_row_is_removed(
    store: FeatureStore, clock: ManualClock, settings: Settings, tmp_path: Path
) -> None:
    await write_daily(store, clock)
    backends = await backends_of(store)
    segments = Path(settings.home) / "segments"
    segments.rename(tmp_path / "segments")
    with pytest.raises(BackendError):
        await store.admin.prune(history="1d")
    assert (await backends.catalog.load()).pruned.history == clock.now() - DAY
    (tmp_path / "segments").rename(segments)
    assert await past(store, "bought") == [0, 1, 2]
    pruned = await store.admin.prune(history="1d")
    assert pruned.history == PrunedPart(clock.now() - DAY, 2)


async def test_a_nightly_run_that_failed_is_repeated_by_its_worker_and_later_by_others(
    store: FeatureStore, clock: ManualClock, settings: Settings, tmp_path: Path
) -> None:
    failing, waiting = [await nightly(store) for _ in range(2)]
    await failing.run(clock.now())
    clock.advance(DAY)
    segments = Path(settings.home) / "segments"
    segments.rename(tmp_path / "segments")
    for _ in range(2):
        with pytest.raises(BackendError):
            await failing.run(clock.now())
        assert await waiting.run(clock.now()) is None
    clock.advance(timedelta(minutes=10))
    with pytest.raises(BackendError):
        await waiting.run(clock.now())
    assert await failing.run(clock.now()) is None
    (tmp_path / "segments").rename(segments)
    assert await waiting.run(clock.now()) is not None
    assert await failing.run(clock.now()) is None
