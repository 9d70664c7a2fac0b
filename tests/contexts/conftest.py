"""A store of its own for every test of contexts, in each environment, with a hand-wound clock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.settings import Settings
from headwater.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["embedded", "production"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    """The settings of a store of its own, in each environment."""
    own = Settings() if request.param == "embedded" else request.getfixturevalue("production")
    chosen: Settings = own.with_(home=tmp_path, partitions=4)
    return chosen


@pytest.fixture
async def store(settings: Settings, clock: ManualClock) -> AsyncIterator[FeatureStore]:
    opened = FeatureStore(settings=settings, clock=clock)
    yield opened
    await opened.close()


@pytest.fixture
def user(store: FeatureStore) -> type:
    """The entity that most tests are about, with a feature that can be set."""

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="visit")
    async def plan(user_id: str, event: ServiceEvent) -> str:
        return str(event.payload["plan"])

    @feature(entity=User, trigger="visit", default=0)
    async def visits(user_id: str, event: ServiceEvent) -> int:
        return 1

    return User
