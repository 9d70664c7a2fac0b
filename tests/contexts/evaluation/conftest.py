"""A world that is lived twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from headwater import FeatureStore
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.contexts.evaluation.worlds import World


@pytest.fixture
async def world(
    store: FeatureStore, settings: Settings, clock: ManualClock
) -> AsyncIterator[World]:
    """Yield a store with former features, one that replays it, and one that lives without them."""
    edited = FeatureStore(settings=settings, clock=clock)
    with TemporaryDirectory(prefix="hw-") as folder:
        truth = FeatureStore(
            settings=Settings().replace(home=Path(folder), partitions=4), clock=clock
        )
        yield World(store, edited, truth, clock)
        await truth.close()
