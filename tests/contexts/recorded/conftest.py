"""A shop whose contexts are recorded, in each environment, with a manual clock."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from headwater import FeatureStore
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.contexts.recorded.database import Database
from tests.contexts.recorded.shop import Opens, Shop, declare


@pytest.fixture
async def opens(settings: Settings, clock: ManualClock) -> AsyncIterator[Opens]:
    """Open the same shop several times, each time with other settings."""
    stores: list[FeatureStore] = []

    def shop(**changes: object) -> Shop:
        store = FeatureStore(settings=settings.replace(**changes), clock=clock)
        stores.append(store)
        return declare(store)

    yield shop
    for store in stores:
        await store.close()


@pytest.fixture
def shop(opens: Opens) -> Shop:
    return opens()


@pytest.fixture
def database(settings: Settings) -> Database:
    """A way to the stored records around the store."""
    return Database(settings)
