"""The entity of the tests of contexts."""

from __future__ import annotations

import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature


@pytest.fixture
def user(store: FeatureStore) -> type:
    """An entity with two features."""

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
