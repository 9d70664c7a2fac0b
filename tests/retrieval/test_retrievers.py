"""Retrievers: user functions whose results are cached and shared."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from headwater import Chunk, ContextItem, FeatureStore, ServiceEvent, context, feature, retriever
from headwater.declarations.contexts import RetrieverFunction
from headwater.declarations.runtime import runtime_of
from headwater.errors import (
    BackendError,
    InvalidInputError,
    RecordValueError,
    RetrieverFailedError,
    UnknownNameError,
)
from headwater.features.call_scope import at_moment
from headwater.ports import Cached
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.contexts.support import recorded
from tests.engine.support import records, until_shared


class Searches:
    """Counts searches and records their arguments."""

    def __init__(self) -> None:
        self.made: list[tuple[Any, ...]] = []

    async def __call__(self, *asked: Any) -> list[str]:
        self.made.append(asked)
        return [f"result {len(self.made)}"]


@pytest.fixture
def searches() -> Searches:
    return Searches()


@dataclass
class Hit:
    text: str
    id: str
    score: float


@pytest.mark.parametrize(
    ("given", "chunk"),
    [
        ("text", Chunk(text="text")),
        ({"text": "text", "id": "d1", "score": 0.5}, Chunk(text="text", id="d1", score=0.5)),
        (Hit("text", "d1", 0.5), Chunk(text="text", id="d1", score=0.5)),
        (Chunk(text="t", metadata={"page": 3}), Chunk(text="t", metadata={"page": 3})),
    ],
)
async def test_a_search_gives_texts_mappings_objects_or_chunks(
    store: FeatureStore, given: object, chunk: Chunk
) -> None:
    @retriever(store)
    async def search() -> object:
        return (given,)

    @retriever(store, cache_ttl="1m")
    def search_in_a_thread() -> object:
        return iter([given])

    assert await search() == [chunk]
    assert await search_in_a_thread() == [chunk]


@pytest.mark.parametrize("given", ["text", {"text": "a"}, Chunk(text="a"), 5])
async def test_a_single_result_outside_a_list_is_refused(
    store: FeatureStore, given: object
) -> None:
    @retriever(store)
    async def search() -> object:
        return given

    with pytest.raises(RetrieverFailedError, match="it must return a list of texts, mappings"):
        await search()


@pytest.mark.parametrize("given", [{"id": "d1"}, {"text": "a", "id": 5}, None, 7])
async def test_a_result_that_is_not_a_chunk_is_refused(store: FeatureStore, given: object) -> None:
    @retriever(store)
    async def search() -> object:
        return [given]

    with pytest.raises(RetrieverFailedError, match=r"result 0 of type \w+ is not a chunk"):
        await search()


async def test_nothing_found_is_an_empty_list(store: FeatureStore) -> None:
    @retriever(store)
    async def search() -> list[str]:
        return []

    assert await search() == []


async def test_a_search_without_return_is_refused(store: FeatureStore) -> None:
    @retriever(store, cache_ttl="1m")
    async def awaited(query: str) -> list[str]:  # type: ignore[return]
        _ = [query]

    @retriever(store, cache_ttl="1m")
    def called(query: str) -> list[str] | None:
        return None if query else []

    for search in (awaited, called):
        with pytest.raises(RetrieverFailedError, match="returned None, as a function without"):
            await search("a")


async def test_at_most_top_k_are_kept(store: FeatureStore) -> None:
    @retriever(store, top_k=2, cache_ttl="1m")
    async def search() -> list[str]:
        return ["a", "b", "c"]

    for _ in range(2):
        assert [chunk.text for chunk in await search()] == ["a", "b"]


async def test_sync_searches_run_in_a_thread(store: FeatureStore) -> None:
    @retriever(store)
    def search() -> list[str]:
        return [threading.current_thread().name]

    assert (await search())[0].text.startswith("headwater-sync")


async def test_an_exception_of_a_search_names_it_and_is_never_cached(
    store: FeatureStore,
) -> None:
    problems = [OSError("index is away")]

    @retriever(store, cache_ttl="1m")
    async def search() -> list[str]:
        if problems:
            raise problems.pop()
        return ["found"]

    with pytest.raises(RetrieverFailedError, match="'search' failed: OSError: index is away"):
        await search()
    assert [chunk.text for chunk in await search()] == ["found"]


async def test_our_own_errors_come_out_as_they_are(store: FeatureStore) -> None:
    @retriever(store)
    async def search() -> list[str]:
        return [str(await store.get_feature("unheard_of", "u1"))]

    with pytest.raises(UnknownNameError):
        await search()


async def test_arguments_of_every_kind_are_passed_and_recorded(store: FeatureStore) -> None:
    @retriever(store, cache_ttl="1m")
    async def search(first: str, /, *rest: int, third: str = "c", **more: int) -> list[str]:
        return [f"{first} {rest} {third} {more}"]

    @context(store)
    async def made() -> str:
        (found,) = await search("a", 1, 2, fourth=4)
        return found.text

    ctx = await made()
    assert ctx.content == "a (1, 2) c {'fourth': 4}"
    asked = {"first": "a", "rest": (1, 2), "third": "c", "more": {"fourth": 4}}
    assert ctx.lineage.retrievers[0].arguments == asked
    assert (await recorded(store, ctx)).retrievals[0].arguments == asked


async def test_wrong_arguments_are_refused_before_the_search(store: FeatureStore) -> None:
    @retriever(store)
    async def search(query: str) -> list[str]:
        raise AssertionError("it searched")

    with pytest.raises(InvalidInputError, match="'search': missing a required argument: 'query'"):
        await search()  # type: ignore[call-arg]
    with pytest.raises(RecordValueError, match="/arguments/query"):
        await search(object())  # type: ignore[arg-type]


# The cache


async def test_the_same_arguments_are_searched_once_within_the_time_to_live(
    store: FeatureStore, clock: ManualClock, searches: Searches
) -> None:
    @retriever(store, cache_ttl="5m")
    async def search(query: str, limit: int = 3) -> list[str]:
        return await searches(query, limit)

    @context(store)
    async def made(query: str) -> str:
        (found,) = await search(limit=3, query=query)
        return found.text

    assert (await search("shoes"))[0].text == "result 1"
    clock.advance("4m")
    hit = await made("shoes")
    assert (hit.content, hit.lineage.retrievers[0].cache_hit) == ("result 1", True)
    assert hit.lineage.retrievers[0].age_ms == 240_000
    clock.advance("1m")
    miss = await made("shoes")
    assert (miss.content, miss.lineage.retrievers[0].cache_hit) == ("result 2", False)
    assert miss.lineage.retrievers[0].age_ms == 0
    assert searches.made == [("shoes", 3), ("shoes", 3)]


async def test_a_search_without_a_time_to_live_is_made_every_time(
    store: FeatureStore, searches: Searches
) -> None:
    @retriever(store)
    async def search(query: str) -> list[str]:
        return await searches(query)

    await search("shoes")
    await search("shoes")
    assert len(searches.made) == 2


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        (1, 1.0, False),
        ("1", 1, False),
        (True, 1, False),
        ([1, 2], (1, 2), False),
        ([1, 2], [2, 1], False),
        ({3, 1, 2}, {1, 2, 3}, True),
        ("a", "A", False),
        (None, "", False),
        (float("nan"), float("nan"), True),
        (0.0, -0.0, False),
    ],
)
async def test_arguments_are_the_same_if_their_canonical_form_is(
    store: FeatureStore, searches: Searches, one: object, other: object, same: bool
) -> None:
    @retriever(store, cache_ttl="5m")
    async def search(asked: object) -> list[str]:
        return await searches(asked)

    await search(one)
    await search(other)
    assert len(searches.made) == (1 if same else 2)


async def test_retrievers_of_different_names_share_nothing(
    store: FeatureStore, searches: Searches
) -> None:
    async def search(query: str) -> list[str]:
        return await searches(query)

    for name in ("docs", "tickets"):
        await retriever(store, cache_ttl="5m", name=name)(search)("shoes")
    assert len(searches.made) == 2


async def test_identical_calls_at_the_same_time_share_one_search(store: FeatureStore) -> None:
    finish, made = asyncio.Event(), []

    @retriever(store, cache_ttl="5m")
    async def search(query: str) -> list[str]:
        made.append(query)
        await finish.wait()
        return [f"about {query}"]

    @context(store)
    async def asks(query: str) -> str:
        (found,) = await search(query)
        return found.text

    calls = [asyncio.ensure_future(asks("shoes")) for _ in range(20)]
    others = [asyncio.ensure_future(asks("hats")) for _ in range(3)]
    await until_shared(store, 23)
    calls[0].cancel()
    finish.set()
    with pytest.raises(asyncio.CancelledError):
        await calls[0]
    contexts = await asyncio.gather(*calls[1:], *others)
    assert sorted(made) == ["hats", "shoes"]
    assert {ctx.content for ctx in contexts} == {"about shoes", "about hats"}
    for ctx in contexts:
        assert [read.count for read in ctx.lineage.retrievers] == [1]


def declared(store: FeatureStore, searches: Searches) -> RetrieverFunction[[str]]:
    @retriever(store, cache_ttl="5m")
    async def search(query: str) -> list[str]:
        return await searches(query)

    return search


@pytest.fixture
async def another(settings: Settings, clock: ManualClock) -> AsyncIterator[FeatureStore]:
    """The same store, opened again as another process would."""
    async with FeatureStore(settings=settings, clock=clock) as opened:
        yield opened


async def test_results_are_shared_by_processes_and_outlive_them(
    store: FeatureStore, another: FeatureStore, searches: Searches
) -> None:
    await declared(store, searches)("shoes")
    await store.close()
    assert (await declared(another, searches)("shoes"))[0].text == "result 1"
    assert len(searches.made) == 1


async def test_results_are_the_same_for_the_first_and_for_the_next(store: FeatureStore) -> None:
    @retriever(store, cache_ttl="5m")
    async def search() -> list[Chunk]:
        return [Chunk(text="a", id="d1", score=0.1, metadata={"pages": (1, 2), "lang": None})]

    first, second = await search(), await search()
    assert first == second
    assert first[0].metadata["pages"] == second[0].metadata["pages"] == (1, 2)


class BrokenCache:
    """A cache whose server is away, or holds what another version wrote."""

    def __init__(self, cached: Callable[[], Cached | None]) -> None:
        self._cached = cached

    async def get(self, key: str) -> Cached | None:
        return self._cached()

    async def drops(self) -> int:
        raise BackendError("the server is away")

    async def put(self, key: str, cached: Cached, ttl: object, *, drops: int | None = None) -> None:
        raise BackendError("the server is away")

    async def drop(self, *prefixes: str) -> None:
        raise BackendError("the server is away")


def away() -> Cached | None:
    raise BackendError("the server is away")


@pytest.mark.parametrize(
    "cached",
    [
        away,
        lambda: Cached(b'{"old": "form"}', 0),
        lambda: Cached(b'{"chunks":[["a",null,"high",{}]],"oldest":null,"provenance":[]}', 0),
        lambda: Cached(b'{"chunks":[["a",null,null,{"n":0.5}]],"oldest":null,"provenance":[]}', 0),
    ],
)
async def test_without_its_cache_a_search_is_made(
    store: FeatureStore,
    searches: Searches,
    capsys: pytest.CaptureFixture[str],
    cached: Callable[[], Cached | None],
) -> None:
    search = declared(store, searches)
    engine = await runtime_of(store).open()
    engine.retrievers._cache = BrokenCache(cached)  # noqa: SLF001
    assert (await search("shoes"))[0].text == "result 1"
    said = capsys.readouterr().err
    assert [r["retriever"] for r in records(said, "could not read cached search results")] == [
        "search"
    ]
    assert [r["retriever"] for r in records(said, "could not cache search results")] == ["search"]


async def test_a_look_at_the_past_neither_takes_nor_leaves_results(
    store: FeatureStore, clock: ManualClock, searches: Searches
) -> None:
    search = declared(store, searches)
    with at_moment(clock.now()):
        assert (await search("shoes"))[0].text == "result 1"
    assert (await search("shoes"))[0].text == "result 2"
    with at_moment(clock.now()):
        assert (await search("shoes"))[0].text == "result 3"


# Inside a handler


async def test_a_search_that_read_uncommitted_writes_is_not_shared(
    store: FeatureStore, user: type
) -> None:
    @retriever(store, cache_ttl="1h")
    async def search(user_id: str) -> list[str]:
        return [f"for {await store.get_feature('plan', user_id)}"]

    found = []

    @feature(entity=user, trigger="purchase", max_retries=0)
    async def spend(user_id: str, event: ServiceEvent) -> float:
        await store.set_feature("plan", user_id, "gold")
        found.append((await search(user_id))[0].text)
        raise OSError("nothing that it wrote counts")

    await store.publish("visit", "u1", {"plan": "silver"})
    await store.publish("purchase", "u1")
    await store.drain()
    assert found == ["for gold"]
    assert [chunk.text for chunk in await search("u1")] == ["for silver"]


async def test_a_handler_never_joins_the_search_of_another(store: FeatureStore, user: type) -> None:
    begun, go_on, made = asyncio.Event(), asyncio.Event(), []

    @retriever(store, cache_ttl="1h")
    async def search(user_id: str) -> list[str]:
        made.append(user_id)
        if len(made) == 1:
            begun.set()
            await go_on.wait()
        return [f"for {await store.get_feature('plan', user_id)}"]

    @feature(entity=user, trigger="purchase", max_retries=0)
    async def bought_as(user_id: str, event: ServiceEvent) -> str:
        await store.set_feature("plan", user_id, "gold")
        return (await search(user_id))[0].text

    other = asyncio.create_task(search("u1"))
    await begun.wait()
    await store.publish("purchase", "u1")
    await store.drain()
    go_on.set()
    await other
    assert len(made) == 2
    assert await store.get_feature("bought_as", "u1") == "for gold"


async def test_a_handler_uses_the_cache_and_caches_results_that_read_no_feature(
    store: FeatureStore, user: type, searches: Searches
) -> None:
    search = declared(store, searches)

    @feature(entity=user, trigger="purchase", max_retries=0)
    async def advice(user_id: str, event: ServiceEvent) -> str:
        return (await search("shoes"))[0].text

    for user_id in ("u1", "u2"):
        await store.publish("purchase", user_id)
        await store.drain()
        assert await store.get_feature("advice", user_id) == "result 1"
    assert len(await search("shoes")) == len(searches.made) == 1


# What a search reads itself


async def test_reads_of_a_shared_search_are_lineage_of_all_its_callers(
    store: FeatureStore, user: type
) -> None:
    go_on = asyncio.Event()

    @retriever(store, cache_ttl="5m")
    async def search(user_id: str) -> list[str]:
        await go_on.wait()
        return [f"for {await store.get_feature('plan', user_id)}"]

    @context(store)
    async def made(user_id: str) -> list[ContextItem]:
        return [ContextItem(found.text) for found in await search(user_id)]

    await store.publish("visit", "u1", {"plan": "gold"})
    await store.drain()
    both = [asyncio.create_task(made("u1")) for _ in range(2)]
    await until_shared(store, 2)
    go_on.set()
    for ctx in await asyncio.gather(*both):
        assert ctx.content == "for gold"
        assert [(read.feature, read.value) for read in ctx.lineage.features] == [("plan", "gold")]


async def test_an_inner_search_is_in_the_lineage(store: FeatureStore) -> None:
    @retriever(store)
    async def words(query: str) -> list[str]:
        return query.split()

    @retriever(store)
    async def search(query: str) -> list[str]:
        return [found.text.upper() for found in await words(query)]

    @context(store)
    async def made() -> str:
        return " ".join(found.text for found in await search("red shoes"))

    ctx = await made()
    assert ctx.content == "RED SHOES"
    assert [read.retriever for read in ctx.lineage.retrievers] == ["words", "search"]


async def test_a_feature_that_searches_is_as_old_as_the_search(
    store: FeatureStore, user: type, clock: ManualClock, searches: Searches
) -> None:
    search = declared(store, searches)

    @feature(entity=user)
    async def advice(user_id: str) -> str:
        return (await search("shoes"))[0].text

    await search("shoes")
    clock.advance("3m")
    ((row),) = await store.get_feature_values(["advice"], ["u1"])
    assert row["advice"].age_ms(clock.now()) == 180_000
