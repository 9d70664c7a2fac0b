"""A store of its own for every test of the engine, with a hand-wound clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from headwater import FeatureStore, entity
from headwater.settings import Settings
from headwater.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder with a short path, so that workers are woken by datagrams as in real life."""
    with TemporaryDirectory(prefix="hw-") as folder:
        yield Path(folder)


@pytest.fixture(params=["embedded", "production"])
def settings(request: pytest.FixtureRequest, home: Path) -> Settings:
    """The settings of a store of its own, in each environment."""
    own = Settings() if request.param == "embedded" else request.getfixturevalue("production")
    chosen: Settings = own.with_(home=home, partitions=4)
    return chosen


@pytest.fixture
async def store(settings: Settings, clock: ManualClock) -> AsyncIterator[FeatureStore]:
    opened = FeatureStore(settings=settings, clock=clock)
    yield opened
    await opened.close()


@pytest.fixture
def user(store: FeatureStore) -> type:
    """The entity that most tests are about."""

    @entity(store)
    class User:
        user_id: str

    return User
