"""Fixtures: a store on real servers for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from headwater import FeatureStore, entity
from headwater.settings.schema import Settings


@pytest.fixture(params=["server", "cluster"])
def settings(request: pytest.FixtureRequest, production: Settings) -> Settings:
    """Settings of a separate store, on a single Redis and on a cluster of three."""
    if request.param == "cluster":
        url = request.getfixturevalue("cluster_url")
        return production.replace(redis={"url": url}, partitions=4)
    return production.replace(partitions=4)


@pytest.fixture
async def store(settings: Settings) -> AsyncIterator[FeatureStore]:
    opened = FeatureStore(settings=settings)
    yield opened
    await opened.close()


@pytest.fixture
def user(store: FeatureStore) -> type:
    """The entity of most tests."""

    @entity(store)
    class User:
        user_id: str

    return User
