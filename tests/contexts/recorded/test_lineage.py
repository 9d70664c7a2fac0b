"""Lineage read back from a record is the one that the context came with."""

from __future__ import annotations

import msgspec
import pytest

from headwater import Chunk, ContextItem, FeatureStore, ServiceEvent, context, entity, retriever
from headwater.declarations.contexts import ContextFunction
from headwater.declarations.feature_decorators import feature
from headwater.model.lineage import Context, ContextLineage
from headwater.testing import ManualClock, temporary


class Size(msgspec.Struct, frozen=True):
    """A type of a feature that only JSON can tell."""

    width: int


@pytest.fixture
def store() -> FeatureStore:
    store = FeatureStore()

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="tagged")
    def tags(user_id: str, event: ServiceEvent) -> set[str]:
        return set(event.payload["tags"])

    @feature(entity=User, trigger="tagged")
    def groups(user_id: str, event: ServiceEvent) -> dict[str, frozenset[int]]:
        return {}

    @feature(entity=User, trigger="sized")
    def size(user_id: str, event: ServiceEvent) -> Size:
        return Size(1)

    @feature(entity=User, trigger="sized")
    def sizes(user_id: str, event: ServiceEvent) -> frozenset[Size]:
        return frozenset({Size(1)})

    return store


async def read_back(store: FeatureStore, made: Context) -> ContextLineage:
    return (await store.get_context_at(made.context_id)).lineage


async def test_sets_come_back_as_sets(store: FeatureStore) -> None:
    @context(store)
    async def profile(user_id: str) -> str:
        return str(await store.get_features(["tags", "groups"], [user_id]))

    async with temporary(store):
        await store.set_feature("tags", "ada", {"new", "vip"})
        await store.set_feature("groups", "ada", {"all": frozenset({1, 2})})
        made = await profile("ada")
        assert await read_back(store, made) == made.lineage


async def test_values_without_an_exact_form_come_back_as_json(
    store: FeatureStore,
) -> None:
    @context(store)
    async def profile(user_id: str) -> str:
        return str(await store.get_features(["size", "sizes"], [user_id]))

    async with temporary(store):
        await store.set_feature("size", "ada", Size(3))
        await store.set_feature("sizes", "ada", frozenset({Size(4)}))
        back = await read_back(store, await profile("ada"))
        values = {read.feature: read.value for read in back.features}
        assert values == {"size": {"width": 3}, "sizes": [{"width": 4}]}


def nesting(store: FeatureStore) -> ContextFunction[[str]]:
    """A context with searches and a context inside, of which some rest on nothing."""

    @retriever(store)
    async def search(user_id: str) -> list[Chunk]:
        return [Chunk(text=str(await store.get_feature("tags", user_id)), id="d1")]

    @context(store, freshness_sla="5m")
    async def inner(user_id: str) -> list[ContextItem]:
        return [ContextItem(found.text, source=found) for found in await search(user_id)]

    @context(store, freshness_sla="1h")
    async def outer(user_id: str) -> list[ContextItem]:
        await search("unknown")
        await search(user_id)
        made = await inner(user_id)
        return [ContextItem(made.content, source=made, section="inner")]

    return outer


async def test_searches_and_inner_contexts_come_back_as_fresh_as_they_were(
    store: FeatureStore,
) -> None:
    outer, clock = nesting(store), ManualClock()
    async with temporary(store, clock=clock):
        await store.set_feature("tags", "ada", {"new"})
        clock.advance("10m")
        made = await outer("ada")
        back = await read_back(store, made)
        assert [call.fresh for call in back.retrievers] == [False, True]
        assert [nested.freshness_status for nested in back.contexts] == ["degraded"]
        assert back == made.lineage
