"""A context that reads the plan of a user."""

from __future__ import annotations

from headwater import FeatureStore, context
from headwater.declarations.contexts import ContextFunction


async def visit(store: FeatureStore, entity_id: str = "u1") -> None:
    await store.publish("visit", entity_id, {"plan": "gold"})
    await store.drain()


def declared(store: FeatureStore, *, strict: bool = False) -> ContextFunction[[str]]:
    @context(store, freshness_sla="5m", freshness_strict=strict)
    async def made(user_id: str) -> str:
        return str(await store.get_feature("plan", user_id))

    return made
