"""Users that a store knows by an event."""

from __future__ import annotations

from headwater import FeatureStore, ServiceEvent, feature


async def know(store: FeatureStore, *entity_ids: str) -> None:
    """Publish an event of each entity, so that the store knows it."""
    for entity_id in entity_ids:
        await store.publish("seen", entity_id)


def declare_seen(user: type) -> None:
    @feature(entity=user, trigger="seen")
    async def seen(user_id: str, event: ServiceEvent) -> bool:
        return True
