"""The features file of the second consumer group, which gets every event, too."""

from __future__ import annotations

from chaos.clock import clock_of_this_process
from chaos.features import EMPTY, Chain, extended
from chaos.plan import CHAINED
from headwater import FeatureStore, ServiceEvent, entity, feature

store = FeatureStore(clock=clock_of_this_process())


def declare(store: FeatureStore) -> None:
    """Declare the features of the second group."""

    @entity(store)
    class Watched:
        watched_id: str

    @feature(entity=Watched, trigger=CHAINED)
    async def seen(watched_id: str, event: ServiceEvent) -> Chain:
        before = await store.get_feature("seen", watched_id) or EMPTY
        return extended(before, event.payload["number"], event.event_id)


declare(store)
