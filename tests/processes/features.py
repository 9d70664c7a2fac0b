"""Features whose values tell which events took effect, how often and in which order."""

from headwater import FeatureStore, ServiceEvent, entity, feature

store = FeatureStore()


@entity(store)
class Account:
    account_id: str


@feature(entity=Account, trigger="step")
async def steps(account_id: str, event: ServiceEvent) -> list[int]:
    """The numbers of all events that took effect, in the order in which they did."""
    before = await store.get_feature("steps", account_id) or []
    return [*before, event.payload["number"]]
