"""The entity that tests of the engine are about."""

from __future__ import annotations

import pytest

from headwater import FeatureStore, entity


@pytest.fixture
def user(store: FeatureStore) -> type:
    """The entity that most tests are about."""

    @entity(store)
    class User:
        user_id: str

    return User
