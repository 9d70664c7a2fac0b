"""The features file of the second consumer group, which gets every event, too."""

from __future__ import annotations

from chaos.features import EMPTY, Chain, extended
from chaos.plan import CHAINED
from headwater import FeatureStore, ServiceEvent, entity, feature

store = FeatureStore()


@entity(store)
class Watched:
    watched_id: str


@feature(entity=Watched, trigger=CHAINED)
async def seen(watched_id: str, event: ServiceEvent) -> Chain:
    before = await store.get_feature("seen", watched_id) or EMPTY
    return extended(before, event.payload["number"], event.event_id)
