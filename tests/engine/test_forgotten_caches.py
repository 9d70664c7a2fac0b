"""Forgetting an entity: nothing that was computed from it is served again, in any process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine

import pytest

from headwater import (
    Chunk,
    ContextItem,
    FeatureStore,
    ServiceEvent,
    context,
    entity,
    retriever,
)
from headwater.declarations.runtime import runtime_of
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.engine.support import until, until_shared

Search = Callable[[str], Coroutine[None, None, list[Chunk]]]


class Customers:
    """The names of customers in a database of the user, and a gate before they are read."""

    def __init__(self) -> None:
        self.names = {"7": "Ada Lovelace"}
        self.asked = 0
        self.is_open = asyncio.Event()
        self.is_open.set()

    async def lookup(self, query: str) -> list[str]:
        found = self.names.get(query, "nobody")
        self.asked += 1
        await self.is_open.wait()
        return [found]


def declared(store: FeatureStore, customers: Customers) -> Search:
    """Declare an entity without features, a cached search, and a context that shows it."""

    @entity(store)
    class Customer:
        customer_id: str

    @retriever(store, cache_ttl="1h")
    async def lookup(query: str) -> list[str]:
        return await customers.lookup(query)

    @context(store)
    async def answer(query: str) -> list[ContextItem]:
        return [ContextItem(chunk.text) for chunk in await lookup(query)]

    return lookup


@pytest.fixture(params=[True, False], ids=["default", "private"])
async def processes(
    request: pytest.FixtureRequest, settings: Settings, clock: ManualClock
) -> AsyncIterator[tuple[FeatureStore, FeatureStore]]:
    """Yield a store as two processes have it open, with records of contents or without."""
    chosen = settings.replace(record={"include_content": request.param})
    async with (
        FeatureStore(settings=chosen, clock=clock) as one,
        FeatureStore(settings=chosen, clock=clock) as other,
    ):
        yield one, other


@pytest.mark.both_environments
async def test_a_cached_search_answers_no_process_with_an_erased_text(
    processes: tuple[FeatureStore, FeatureStore],
) -> None:
    customers = Customers()
    searches = [declared(store, customers) for store in processes]
    for search in searches:
        assert (await search("7"))[0].text == "Ada Lovelace"
    del customers.names["7"]
    for search in searches:
        assert (await search("7"))[0].text == "Ada Lovelace"  # cached, as declared
    await processes[0].admin.forget("Customer", "7", reason="request 12", dry_run=True)
    for search in searches:
        assert (await search("7"))[0].text == "Ada Lovelace"
    report = await processes[0].admin.forget("Customer", "7", reason="request 12")
    assert report.records == 0
    for search in searches:
        assert (await search("7"))[0].text == "nobody"
    for store in processes:
        assert (await store.assemble("answer", {"query": "7"})).content == "nobody"


@pytest.mark.both_environments
async def test_a_search_that_runs_during_an_erasure_is_neither_cached_nor_shared_after_it(
    processes: tuple[FeatureStore, FeatureStore],
) -> None:
    customers = Customers()
    searches = [declared(store, customers) for store in processes]
    customers.is_open.clear()
    before = [asyncio.create_task(search("7")) for search in searches]
    await until(lambda: customers.asked == len(searches))
    del customers.names["7"]
    await processes[1].admin.forget("Customer", "7", reason="request 12")
    after = [asyncio.create_task(search("7")) for search in searches]
    for store in processes:
        await until_shared(store, 2)
    customers.is_open.set()
    assert [(await each)[0].text for each in before] == ["Ada Lovelace"] * 2
    assert [(await each)[0].text for each in after] == ["nobody"] * 2
    for search in searches:
        assert (await search("7"))[0].text == "nobody"


class Roster:
    """A store with a user, and a team whose cached value shows the name of the user."""

    def __init__(self, store: FeatureStore) -> None:
        self.store = store
        self.asked = 0
        self.is_open = asyncio.Event()
        self.is_open.set()

        @entity(store)
        class User:
            user_id: str

        @entity(store)
        class Team:
            team_id: str

        @store.feature(User, trigger="named", default="nobody")
        async def name(user_id: str, event: ServiceEvent) -> str:
            return str(event.payload["name"])

        @store.feature(Team, ttl="1h")
        async def members(team_id: str) -> str:
            found = await store.get_feature("name", "7")
            self.asked += 1
            await self.is_open.wait()
            return f"members: {found}"

        @context(store)
        async def meeting(team_id: str) -> str:
            return str(await store.get_feature("members", team_id))

    async def text(self) -> str:
        return (await self.store.assemble("meeting", {"team_id": "t"})).content or ""


@pytest.mark.both_environments
async def test_a_context_computes_again_what_was_computed_from_the_entity(
    processes: tuple[FeatureStore, FeatureStore],
) -> None:
    one, other = map(Roster, processes)
    await one.store.publish("named", "7", {"name": "Ada"})
    await one.store.drain()
    assert [await one.text(), await other.text()] == ["members: Ada"] * 2
    await one.store.admin.forget("User", "7", reason="request 12")
    assert await one.text() == "members: nobody"
    # Other processes learn of it with the next question whether the store was lost, in a second.
    reader = (await runtime_of(other.store).open()).reader
    reader.loss._ask_at = 0.0  # noqa: SLF001
    assert await other.text() == "members: nobody"


@pytest.mark.both_environments
async def test_a_value_that_is_computed_during_an_erasure_is_neither_stored_nor_shared_after_it(
    processes: tuple[FeatureStore, FeatureStore],
) -> None:
    roster = Roster(processes[0])
    await roster.store.publish("named", "7", {"name": "Ada"})
    await roster.store.drain()
    roster.is_open.clear()
    before = asyncio.create_task(roster.store.get_feature("members", "t"))
    await until(lambda: roster.asked == 1)
    await roster.store.admin.forget("User", "7", reason="request 12")
    after = asyncio.create_task(roster.store.get_feature("members", "t"))
    await until_shared(roster.store, 2)
    roster.is_open.set()
    assert [await before, await after] == ["members: Ada", "members: nobody"]
    assert await roster.store.get_feature("members", "t") == "members: nobody"
    history = await roster.store.get_feature_history("members", "t")
    assert "members: Ada" not in [each.value for each in history]
