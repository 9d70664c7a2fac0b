"""The features that the example serves; put yours in its place."""

from headwater import FeatureStore, ServiceEvent, entity, feature

store = FeatureStore()


@entity(store)
class User:
    """A customer of the shop."""

    user_id: str


@feature(entity=User, trigger="purchase")
async def total_spend(user_id: str, event: ServiceEvent) -> float:
    """What a user has spent so far."""
    before: float = await store.get_feature("total_spend", user_id) or 0.0
    return before + float(event.payload["amount"])
