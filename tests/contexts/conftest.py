"""The entity that tests of contexts are about."""

from __future__ import annotations

import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature


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
