"""The LangGraph store: compared with LangGraph's own in memory, and used by a graph."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypedDict

import httpx
import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore, GetOp, InvalidNamespaceError, Item, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from headwater import FeatureStore, Index
from headwater.client import AsyncClient, Client
from headwater.errors import CallerLimitError, InvalidInputError
from headwater.http.app import create_app
from headwater.integrations.langgraph import CREATED_AT, NAMESPACE, LangGraphStore
from headwater.model.callers import Caller, CallerLimits, set_caller
from headwater.settings.schema import Settings

NAMES = ("a", "b", "a!", "a/b", "ü", "users")
KEYS = ("k", ".k", "k..k", "a.b", "k/1", "ü")
# Without 1 and 0, which are true and false in the store in memory.
VALUES: tuple[Any, ...] = (7, 2.5, -3, "one", "two", None, True, [7, 2], ["one"], {"in": 7}, {})
FIELDS = ("n", "text", "tags")


class State(TypedDict):
    user: str
    said: str
    known: list[str]


@pytest.fixture
def memory(store: FeatureStore) -> LangGraphStore:
    return LangGraphStore(store, Index(store, "memory", embedder="lexical"))


class Draw:
    """Random operations on a store of LangGraph."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def namespace(self, least: int = 1) -> tuple[str, ...]:
        length = self._random.randint(least, 3)
        return tuple(self._random.choice(NAMES) for _ in range(length))

    def value(self) -> dict[str, Any]:
        names = self._random.sample(FIELDS, self._random.randint(0, 3))
        return {name: self._random.choice(VALUES) for name in names}

    def put(self) -> PutOp:
        value = None if self._random.random() < 0.2 else self.value()
        return PutOp(self.namespace(), self._random.choice(KEYS), value)

    def get(self) -> GetOp:
        return GetOp(self.namespace(), self._random.choice(KEYS))

    def filter(self) -> dict[str, Any] | None:
        # The store in memory raises TypeError where a value that is compared by order is no number.
        operator = self._random.choice(["$eq", "$ne"])
        condition = self._random.choice([*VALUES, {operator: self._random.choice(VALUES)}])
        return self._random.choice([None, {self._random.choice(FIELDS): condition}])

    def search(self) -> SearchOp:
        return SearchOp(self.namespace(0), self.filter(), limit=1_000)

    def listing(self) -> dict[str, Any]:
        paths = [None, *(self.path() for _ in range(2))]
        return {
            "prefix": self._random.choice(paths),
            "suffix": self._random.choice(paths),
            "max_depth": self._random.choice([None, 1, 2, 3]),
            "limit": self._random.choice([3, 100]),
            "offset": self._random.choice([0, 2]),
        }

    def path(self) -> tuple[str, ...]:
        return tuple(self._random.choice([name, "*"]) for name in self.namespace())


def contents(items: Any) -> list[tuple[Any, ...]]:
    """Return items without their times, in one order; true is told apart from 1."""
    return sorted(
        (each.namespace, each.key, json.dumps(each.value, sort_keys=True)) for each in items
    )


async def compare(ours: BaseStore, theirs: BaseStore, draw: Draw, steps: int) -> None:
    for _ in range(steps):
        puts = [draw.put() for _ in range(8)]
        await ours.abatch(puts)
        await theirs.abatch(puts)
        for get in [draw.get() for _ in range(4)] + [GetOp(*put[:2]) for put in puts]:
            (mine,), (other,) = await ours.abatch([get]), await theirs.abatch([get])
            assert contents([mine] if mine else []) == contents([other] if other else [])
        for search in [draw.search() for _ in range(12)]:
            (found,), (expected,) = await ours.abatch([search]), await theirs.abatch([search])
            assert contents(found) == contents(expected), search
        for listing in [draw.listing() for _ in range(6)]:
            names = await ours.alist_namespaces(**listing)
            assert names == await held_namespaces(theirs, listing), listing


async def held_namespaces(store: BaseStore, listing: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the namespaces that have an item: the store in memory keeps those without."""
    items = await store.asearch((), limit=1_000)
    clean = InMemoryStore()
    for item in items:
        clean.put(item.namespace, item.key, item.value)
    return clean.list_namespaces(**listing)


@pytest.mark.both_environments
@pytest.mark.parametrize("seed", range(3))
async def test_it_holds_what_the_store_in_memory_holds(memory: LangGraphStore, seed: int) -> None:
    await compare(memory, InMemoryStore(), Draw(seed), steps=4)


async def test_it_holds_the_same_through_a_client(store: FeatureStore) -> None:
    Index(store, "memory", embedder="lexical")
    transport = httpx.ASGITransport(create_app(store))
    async with AsyncClient("http://localhost", settings=Settings(), transport=transport) as client:
        await compare(LangGraphStore(client, "memory"), InMemoryStore(), Draw(7), steps=2)


def test_the_blocking_methods_work_in_the_process_and_through_a_client(
    store: FeatureStore, memory: LangGraphStore
) -> None:
    memory.put(("users", "ada"), "diet", {"food": "no meat"})
    transport = httpx.ASGITransport(create_app(store))
    with Client("http://localhost", settings=Settings(), transport=transport) as client:
        remote = LangGraphStore(client, "memory")
        item = remote.get(("users", "ada"), "diet")
        assert item is not None
        assert item.value == {"food": "no meat"}
        assert remote.list_namespaces() == [("users", "ada")]
        remote.delete(("users", "ada"), "diet")
        client.run(store.close())
    assert memory.search(("users",)) == []
    store.sync.close()


@pytest.mark.both_environments
async def test_a_query_ranks_items_of_a_namespace_with_scores_and_filters(
    store: FeatureStore,
) -> None:
    index = Index(store, "memory", embedder="lexical", chunk_tokens=16, overlap=0)
    memory = LangGraphStore(store, index, fields=["text"])
    long = " ".join(["Ada likes red wine and old cheese, and says so often."] * 8)
    await memory.aput(("users", "ada"), "wine", {"text": long, "year": 2024})
    await memory.aput(("users", "ada"), "bike", {"text": "Ada rides a bike.", "year": 2025})
    await memory.aput(("users", "bob"), "wine", {"text": "Bob likes wine.", "year": 2026})
    await memory.aput(("users", "ada"), "secret", {"text": "wine wine wine"}, index=False)
    found = await memory.asearch(("users", "ada"), query="Does Ada like wine?", limit=5)
    assert [item.key for item in found] == ["wine", "bike"]
    scores = [item.score or 0 for item in found]
    assert scores == sorted(scores, reverse=True)
    assert all(score > 0 for score in scores)
    everywhere = await memory.asearch(("users",), query="wine", filter={"year": {"$gt": 2024}})
    assert [(item.namespace[1], item.key) for item in everywhere] == [("bob", "wine")]
    second = await memory.asearch(("users", "ada"), query="Does Ada like wine?", limit=1, offset=1)
    assert [item.key for item in second] == ["bike"]
    assert {item.key for item in await memory.asearch(("users", "ada"))} == {
        *("wine", "bike", "secret")
    }


async def test_pages_have_every_item_once(memory: LangGraphStore) -> None:
    puts = [PutOp(("all", str(n % 7)), f"{n:03}", {"n": n}, index=False) for n in range(150)]
    await memory.abatch(puts)
    ordered = {"n": {"$gte": 20, "$lt": 130}}
    for asked, expected in ((None, range(150)), (ordered, range(20, 130))):
        numbers: list[int] = []
        while page := await memory.asearch(("all",), filter=asked, limit=40, offset=len(numbers)):
            numbers += [item.value["n"] for item in page]
        assert sorted(numbers) == [*expected]
    assert len(await memory.alist_namespaces(prefix=("all",))) == 7


@pytest.mark.both_environments
async def test_times_are_those_of_the_first_put_and_of_the_last_change(
    store: FeatureStore, memory: LangGraphStore
) -> None:
    async def item() -> Item:
        stored = await memory.aget(("users", "ada"), "diet")
        assert stored is not None
        return stored

    before = store.clock.now()
    await memory.aput(("users", "ada"), "diet", {"food": "meat"})
    first = await item()
    assert before <= first.created_at == first.updated_at < before + timedelta(minutes=1)
    await memory.aput(("users", "ada"), "diet", {"food": "no meat"})
    second = await item()
    assert first.created_at == second.created_at < second.updated_at
    for _ in range(2):
        await memory.aput(("users", "ada"), "diet", {"food": "no meat"})
        assert (await item()).updated_at == second.updated_at
    await memory.adelete(("users", "ada"), "diet")
    await memory.aput(("users", "ada"), "diet", {"food": "meat"})
    assert second.updated_at < (await item()).created_at


async def test_items_are_documents_that_headwater_filters_and_searches(
    store: FeatureStore, memory: LangGraphStore
) -> None:
    await store.index("memory", "handbook", "Another document of this index.", {"food": "fish"})
    await memory.aput(("users", "ada"), "diet", {"food": "fish"})
    assert [item.key for item in await memory.asearch(())] == ["diet"]
    assert await memory.alist_namespaces() == [("users", "ada")]
    chunks = await store.search("memory", "fish", filters={"food": "fish", NAMESPACE: "users"})
    assert [chunk.document for chunk in chunks] == ["users.ada..diet"]


async def test_limits_of_keys_apply(memory: LangGraphStore) -> None:
    limits = CallerLimits(tenant="acme-", indexes=frozenset({"memory"}))
    set_caller(Caller("acme", frozenset({"ingest", "read"}), limits))
    await memory.aput(("acme-1",), "k", {"n": 1})
    with pytest.raises(CallerLimitError):
        await memory.aput(("bell-1",), "k", {"n": 1})


async def test_misuse_is_refused_with_the_remedy(memory: LangGraphStore) -> None:
    with pytest.raises(NotImplementedError, match="TTL is not supported"):
        await memory.aput(("a",), "k", {}, ttl=5)
    refused: list[tuple[Any, type[Exception], str]] = [
        (PutOp(("a",), "k", {}, ttl=5), InvalidInputError, "put it without ttl"),
        (PutOp(("a.b",), "k", {}), InvalidNamespaceError, "cannot contain periods"),
        (PutOp(("a",), "k", {CREATED_AT: 1}), InvalidInputError, "reserved; rename it"),
        (PutOp(("a",), "k", {"n": object()}), InvalidInputError, "'k' is not JSON"),
        ("get", InvalidInputError, "no operation str"),
    ]
    for op, error, message in refused:
        with pytest.raises(error, match=message):
            await memory.abatch([op])
    await memory.aput(("a",), "k", {"n": 1})
    assert await memory.asearch((), filter={"n": True}) == []
    with pytest.raises(InvalidInputError, match=r"unknown operator '.gtt'"):
        await memory.asearch((), filter={"n": {"$gtt": 1}})


async def test_a_graph_remembers_what_an_earlier_run_was_told(memory: LangGraphStore) -> None:
    async def remember(state: State, runtime: Runtime) -> dict[str, Any]:
        assert runtime.store is not None
        space = ("users", state["user"])
        items = await runtime.store.asearch(space, query=state["said"], limit=3)
        await runtime.store.aput(space, state["said"][:20], {"text": state["said"]})
        return {"known": [item.value["text"] for item in items]}

    builder = StateGraph(State)
    builder.add_node("remember", remember)
    builder.add_edge(START, "remember")
    builder.add_edge("remember", END)
    graph = builder.compile(store=memory)
    run: Callable[..., Any] = graph.ainvoke
    assert (await run({"user": "ada", "said": "I eat no meat.", "known": []}))["known"] == []
    later = await run({"user": "ada", "said": "What meat may I eat?", "known": []})
    assert later["known"] == ["I eat no meat."]
    other = await run({"user": "bob", "said": "What meat may I eat?", "known": []})
    assert other["known"] == []
