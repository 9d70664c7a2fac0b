"""Contexts are found by everything that went into them, directly or indirectly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headwater import (
    Chunk,
    ContextItem,
    FeatureStore,
    ServiceEvent,
    context,
    entity,
    feature,
    retriever,
)
from headwater.backends.connect import connect
from headwater.declarations.contexts import ContextFunction, RetrieverFunction
from headwater.errors import InvalidInputError
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.engine.support import until, until_shared


class Depths:
    """Features, searches and contexts that depend on each other, down to stored values."""

    def __init__(self, store: FeatureStore) -> None:
        self.store = store
        self.computed = 0
        self.searched = 0
        self.user: type
        self.team: type
        self.suggest: RetrieverFunction[[str]]
        self.profile: ContextFunction[[str]]

    async def found(self, **wanted: Any) -> list[str]:
        """The contexts that something went into, the oldest first."""
        page = await self.store.records.find(**wanted)
        return [summary.context_id for summary in page.contexts][::-1]

    def reads(self, name: str) -> ContextFunction[[str]]:
        """A context whose function itself reads one feature."""

        async def function(user_id: str) -> str:
            return str(await self.store.get_feature(name, user_id))

        return context(self.store, name=f"reads_{name}")(function)


def declare(store: FeatureStore) -> Depths:
    depths = Depths(store)

    @entity(store)
    class User:
        user_id: str

    @entity(store)
    class Team:
        team_id: str

    depths.user, depths.team = User, Team
    declare_stored(depths)
    declare_computed(depths)
    declare_search(depths)

    @context(store)
    async def profile(user_id: str) -> ContextItem:
        return ContextItem.template("{opening} You have {standing}.")

    depths.profile = profile
    return depths


def declare_stored(depths: Depths) -> None:
    @feature(entity=depths.user, trigger="named")
    async def name(user_id: str, event: ServiceEvent) -> str:
        return str(event.payload["name"])

    @feature(entity=depths.team, trigger="scored", default=0)
    async def score(team_id: str, event: ServiceEvent) -> int:
        return int(event.payload["score"])


def declare_computed(depths: Depths) -> None:
    @feature(entity=depths.user, template="Dear {name}")
    def salutation(user_id: str) -> str: ...  # type: ignore[empty-body]

    @feature(entity=depths.user, template="{salutation}!")
    def opening(user_id: str) -> str: ...  # type: ignore[empty-body]

    @feature(entity=depths.user)
    async def standing(user_id: str) -> str:
        return f"{await depths.store.get_feature('score', 't1')} points"

    @feature(entity=depths.user, ttl="1h")
    async def rank(user_id: str) -> str:
        depths.computed += 1
        return f"rank by {await depths.store.get_feature('name', 'u9')}"


def declare_search(depths: Depths) -> None:
    @retriever(depths.store, cache_ttl="1h")
    async def suggest(user_id: str) -> list[Chunk]:
        depths.searched += 1
        return [Chunk(text=f"for {await depths.store.get_feature('opening', user_id)}", id="d7")]

    @feature(entity=depths.user)
    async def advice(user_id: str) -> str:
        return (await suggest(user_id))[0].text

    depths.suggest = suggest


@pytest.fixture
async def depths(settings: Settings, clock: ManualClock) -> AsyncIterator[Depths]:
    async with FeatureStore(settings=settings, clock=clock) as store:
        declared = declare(store)
        await store.set_feature("name", "u1", "Ada")
        await store.set_feature("name", "u9", "Zoe")
        await store.set_feature("score", "t1", 7)
        yield declared


async def test_all_direct_and_indirect_features_of_a_template_are_found(depths: Depths) -> None:
    made = (await depths.reads("opening")("u1")).context_id
    for name in ("opening", "salutation", "name"):
        assert await depths.found(feature=name) == [made]
        assert await depths.found(feature=name, entity_id="u1") == [made]
        assert await depths.found(feature=name, entity_id="u2") == []


async def test_a_template_with_a_missing_value_is_found_by_its_features(
    depths: Depths,
) -> None:
    made = (await depths.reads("opening")("unknown")).context_id
    assert await depths.found(feature="name", entity_id="unknown") == [made]


async def test_reads_of_an_on_demand_function_from_another_entity_are_found(
    depths: Depths,
) -> None:
    made = await depths.reads("standing")("u1")
    assert await depths.found(feature="score", entity_id="t1") == [made.context_id]
    assert await depths.found(entity="Team", entity_id="t1") == [made.context_id]
    # The lineage has what the function itself has read.
    assert [read.feature for read in made.lineage.features] == ["standing"]


async def test_the_provenance_of_a_stored_value_is_found_until_it_expires(
    depths: Depths, settings: Settings, clock: ManualClock
) -> None:
    reads = depths.reads("rank")
    first, again = (await reads("u1")).context_id, (await reads("u1")).context_id
    clock.advance("1m")
    async with FeatureStore(settings=settings, clock=clock) as another:
        elsewhere = declare(another)
        there = elsewhere.reads("rank")
        third, fourth = (await there("u1")).context_id, (await there("u1")).context_id
        assert (depths.computed, elsewhere.computed) == (1, 0)
    assert await depths.found(feature="name", entity_id="u9") == [first, again, third, fourth]
    await depths.store.set_feature("rank", "u1", "set by hand")
    fifth = (await reads("u1")).context_id
    assert await depths.found(feature="rank") == [first, again, third, fourth, fifth]
    assert fifth not in await depths.found(feature="name")
    clock.advance("2h")
    later = (await reads("u1")).context_id
    assert depths.computed == 2
    assert (await depths.found(feature="name"))[-1] == later


@pytest.mark.both_environments
async def test_a_context_is_found_by_the_reads_of_a_value_whose_derivation_was_lost(
    depths: Depths, settings: Settings, clock: ManualClock
) -> None:
    first = (await depths.reads("rank")("u1")).context_id
    clock.advance("1m")
    backends = await connect(settings, clock)
    await backends.cache.drop("feature/")
    await backends.lifecycle.close()
    async with FeatureStore(settings=settings, clock=clock) as another:
        elsewhere = declare(another)
        there = elsewhere.reads("rank")
        assert await another.get_feature("rank", "u1") == "rank by Zoe"
        assert elsewhere.computed == 0
        again, after = (await there("u1")).context_id, (await there("u1")).context_id
        assert elsewhere.computed == 1
    assert await depths.found(feature="name", entity_id="u9") == [first, again, after]
    await depths.store.admin.forget("User", "u9", reason="request 12")
    for each in (first, again, after):
        assert (await depths.store.get_context_at(each)).content is None


@pytest.mark.both_environments
async def test_what_a_process_knows_of_a_forgotten_entity_is_in_no_later_record(
    depths: Depths, settings: Settings, clock: ManualClock
) -> None:
    reads = depths.reads("rank")
    assert (await reads("u1")).content == "rank by Zoe"
    async with FeatureStore(settings=settings, clock=clock) as another:
        declare(another)
        await another.admin.forget("User", "u9", reason="request 12")

    async def is_gone() -> bool:
        return (await reads("u1")).content == "rank by None"

    await until(is_gone)  # processes ask once a second


@pytest.mark.both_environments
async def test_without_content_processes_share_the_derivations_of_stored_values(
    settings: Settings, clock: ManualClock
) -> None:
    private = settings.replace(record={"include_content": False})
    async with (
        FeatureStore(settings=private, clock=clock) as one,
        FeatureStore(settings=private, clock=clock) as two,
    ):
        here, there = declare(one), declare(two)
        await one.set_feature("name", "u9", "Zoe")
        made = [(await here.reads("rank")("u1")).context_id]
        made.append((await there.reads("rank")("u1")).context_id)
        assert (here.computed, there.computed) == (1, 0)
        assert await here.found(feature="name", entity_id="u9") == made


async def test_all_contexts_that_share_a_computation_are_found(depths: Depths) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @feature(entity=depths.user)
    async def slow(user_id: str) -> str:
        begun.set()
        await go_on.wait()
        return str(await depths.store.get_feature("name", "u9"))

    reads = depths.reads("slow")
    plain = asyncio.create_task(depths.store.get_feature("slow", "u1"))
    await begun.wait()
    both = [asyncio.create_task(reads("u1")) for _ in range(2)]
    await until_shared(depths.store, 3)
    go_on.set()
    made = [context.context_id for context in await asyncio.gather(*both)]
    assert await plain == "Zoe"
    assert sorted(await depths.found(feature="name", entity_id="u9")) == sorted(made)


async def test_reads_of_a_search_are_found_also_for_cached_results(
    depths: Depths, settings: Settings, clock: ManualClock
) -> None:
    @context(depths.store)
    async def asks(user_id: str) -> list[ContextItem]:
        return [ContextItem(found.text) for found in await depths.suggest(user_id)]

    searched, kept = await asks("u1"), await asks("u1")
    assert [c.lineage.retrievers[0].cache_hit for c in (searched, kept)] == [False, True]
    made = [searched.context_id, kept.context_id]
    for wanted in ({"feature": "opening"}, {"feature": "name", "entity_id": "u1"}, {"chunk": "d7"}):
        assert await depths.found(**wanted) == made
    async with FeatureStore(settings=settings, clock=clock) as another:
        elsewhere = declare(another)
        made.append((await elsewhere.reads("advice")("u1")).context_id)
        assert elsewhere.searched == 0
    assert await depths.found(feature="name", entity_id="u1") == made


async def test_a_context_is_found_by_chunks_that_a_feature_searched_for(depths: Depths) -> None:
    made = (await depths.reads("advice")("u1")).context_id
    assert await depths.found(chunk="d7") == [made]
    assert await depths.found(feature="salutation", entity_id="u1") == [made]


async def test_an_outer_context_has_the_provenance_of_inner_ones(depths: Depths) -> None:
    @context(depths.store)
    async def letter(user_id: str) -> str:
        return f"{await depths.profile(user_id)} Yours"

    outer = await letter("u1")
    (inner,) = outer.lineage.contexts
    assert outer.lineage.features == []
    both = [inner.context_id, outer.context_id]
    for name, owner in (("name", "u1"), ("score", "t1"), ("standing", "u1")):
        assert await depths.found(feature=name, entity_id=owner) == both


async def test_entities_are_found_alone_by_id_and_by_kind(depths: Depths) -> None:
    @feature(entity=depths.team, trigger="won")
    async def wins(team_id: str, event: ServiceEvent) -> int:
        return 1

    one = (await depths.reads("name")("x7")).context_id
    two = (await depths.reads("wins")("x7")).context_id
    assert await depths.found(entity_id="x7") == [one, two]
    assert await depths.found(entity="User", entity_id="x7") == [one]
    assert await depths.found(entity="Team", entity_id="x7") == [two]
    assert await depths.found(entity="Tram", entity_id="x7") == []
    assert await depths.found(feature="wins", entity="Team", entity_id="x7") == [two]
    assert await depths.found(feature="wins", entity="User", entity_id="x7") == []
    with pytest.raises(InvalidInputError, match="give entity_id as well"):
        await depths.found(entity="User")


async def test_a_value_is_read_together_with_its_provenance(depths: Depths) -> None:
    (row,) = await depths.store.get_feature_values(["opening", "name"], ["u1"])
    assert row["opening"].provenance == {
        ("feature", "User", "salutation", "u1"),
        ("feature", "User", "name", "u1"),
    }
    assert row["name"].provenance == frozenset()


async def test_contexts_are_found_by_the_documents_of_their_chunks(store: FeatureStore) -> None:
    @retriever(store, cache_ttl="5m")
    async def search(query: str) -> list[Chunk]:
        return [Chunk(text=query, id=f"{query}#1", document=query, position=3, version=2)]

    @context(store)
    async def inner(query: str) -> str:
        return f"{len(await search(query))} results"

    @context(store)
    async def outer(query: str) -> str:
        return (await inner(query)).content

    first, cached, around = await inner("a"), await inner("a"), await outer("a")
    await inner("b")
    found = await store.records.find(document="a")
    assert [each.context_id for each in found.contexts][:2] == [
        around.context_id,
        around.lineage.contexts[0].context_id,
    ]
    assert [each.context_id for each in found.contexts][2:] == [
        cached.context_id,
        first.context_id,
    ]
    assert (await store.records.find(document="a", chunk="a#1")) == found
    assert (await store.records.find(document="a", index="docs")).contexts == []
    assert (await store.records.find(index="docs")).contexts == []
    (read,) = cached.lineage.retrievers
    (result,) = read.results
    assert (result.document, result.position, result.version) == ("a", 3, 2)
    assert read == (await store.get_context_at(cached.context_id)).lineage.retrievers[0]
