"""Fixtures: a store on real servers for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from headwater import FeatureStore, entity
from headwater.backends.redis import catalog, environment
from headwater.settings.schema import Settings


@pytest.fixture(params=["server", pytest.param("cluster", marks=pytest.mark.cluster)])
def settings(request: pytest.FixtureRequest, production: Settings) -> Settings:
    """Settings of a separate store, on a single Redis and on a cluster of three."""
    chosen = production.replace(partitions=4, worker={"lease_ttl": 60})
    if request.param == "cluster":
        return chosen.replace(redis={"url": request.getfixturevalue("cluster_url")})
    return chosen


@pytest.fixture(autouse=True)
def patient_masters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the masters of a cluster time to answer, which a machine that is overloaded needs."""
    monkeypatch.setattr(catalog, "_PATIENCE_SECONDS", 60.0)
    monkeypatch.setattr(environment, "_PROBE_SECONDS", 60.0)


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
