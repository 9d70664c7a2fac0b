"""The features that the example serves; replace them by your own."""

from headwater import FeatureStore, ServiceEvent, entity, feature

store = FeatureStore()


@entity(store)
class User:
    """A customer of the shop."""

    user_id: str


@feature(entity=User, trigger="purchase")
async def total_spend(user_id: str, event: ServiceEvent) -> float:
    """Total spend of a user."""
    before: float = await store.get_feature("total_spend", user_id) or 0.0
    return before + float(event.payload["amount"])
