"""A store on which nothing is declared yet; declaring opens nothing, so it needs no folder."""

from __future__ import annotations

import pytest

from headwater import FeatureStore, entity
from headwater.settings.schema import Settings


@pytest.fixture
def store() -> FeatureStore:
    return FeatureStore(settings=Settings())


@pytest.fixture
def user(store: FeatureStore) -> type:
    @entity(store)
    class User:
        user_id: str

    return User
