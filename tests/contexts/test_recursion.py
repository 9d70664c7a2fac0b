"""Contexts, retrievers and features that call themselves raise an error at once."""

from __future__ import annotations

import asyncio
import threading

import pytest

from headwater import FeatureStore, ServiceEvent, context, feature, retriever
from headwater.core.thread_offload import THREAD_NAME
from headwater.declarations.runtime import runtime_of
from headwater.errors import ContextFailedError, FeatureFailedError, RetrieverFailedError
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.engine.support import PATIENCE_SECONDS, until, until_shared


@pytest.mark.parametrize("cache_ttl", [None, "1h"])
async def test_retrievers_that_call_each_other_raise_an_error(
    store: FeatureStore, cache_ttl: str | None
) -> None:
    @retriever(store, cache_ttl=cache_ttl)
    async def first(query: str) -> list[str]:
        return [found.text for found in await second(query)]

    @retriever(store, cache_ttl=cache_ttl)
    async def second(query: str) -> list[str]:
        return [found.text for found in await first(query)]

    for _ in range(2):
        with pytest.raises(RetrieverFailedError, match="same arguments: first → second → first"):
            async with asyncio.timeout(PATIENCE_SECONDS):
                await first("shoes")


async def test_searches_that_wait_for_each_other_raise_an_error(store: FeatureStore) -> None:
    entered: list[str] = []
    go_on = asyncio.Event()

    async def enter(name: str) -> None:
        entered.append(name)
        await go_on.wait()

    @retriever(store, cache_ttl="1h")
    async def first(query: str) -> list[str]:
        await enter("first")
        return [found.text for found in await second(query)]

    @retriever(store, cache_ttl="1h")
    async def second(query: str) -> list[str]:
        await enter("second")
        return [found.text for found in await third(query)]

    @retriever(store, cache_ttl="1h")
    async def third(query: str) -> list[str]:
        await enter("third")
        return [found.text for found in await first(query)]

    calls = [asyncio.ensure_future(search("shoes")) for search in (first, second, third)]
    await until(lambda: len(entered) == 3)
    go_on.set()
    async with asyncio.timeout(PATIENCE_SECONDS):
        answers = await asyncio.gather(*calls, return_exceptions=True)
    for answer in answers:
        assert isinstance(answer, RetrieverFailedError)
        assert "RecursionError: it calls itself with the same arguments" in str(answer)


async def test_a_search_and_a_computation_that_wait_for_each_other_raise_an_error(
    store: FeatureStore, user: type
) -> None:
    both = asyncio.Barrier(2)

    @retriever(store, cache_ttl="1h")
    async def search(query: str) -> list[str]:
        await both.wait()
        return [str(await store.get_feature("summary", "u1"))]

    @feature(entity=user)
    async def summary(user_id: str) -> str:
        await both.wait()
        return str(await search("shoes"))

    async with asyncio.timeout(PATIENCE_SECONDS):
        answers = await asyncio.gather(
            search("shoes"), store.get_feature("summary", "u1"), return_exceptions=True
        )
    for answer in answers:
        assert isinstance(answer, RetrieverFailedError | FeatureFailedError)
        assert "same arguments: " in str(answer)
        assert "search → summary" in str(answer) or "summary → search" in str(answer)


async def test_features_of_many_entities_may_read_each_other_in_a_long_chain(
    store: FeatureStore, user: type
) -> None:
    @feature(entity=user)
    async def rank(user_id: str) -> int:
        below = int(user_id) - 1
        return 1 + int(await store.get_feature("rank", str(below))) if below else 1

    assert await store.get_feature("rank", "100") == 100


async def test_searches_that_share_others_without_a_circle_wait_for_them(
    store: FeatureStore,
) -> None:
    made = []
    go_on = asyncio.Event()

    @retriever(store, cache_ttl="1h")
    async def words(query: str) -> list[str]:
        made.append(query)
        await go_on.wait()
        return query.split()

    @retriever(store, cache_ttl="1h")
    async def docs(query: str, page: int) -> list[str]:
        twice = await asyncio.gather(words(query), words(query))
        return [found.text for found in twice[page]]

    searches = asyncio.gather(docs("red shoes", 0), docs("red shoes", 1), words("red shoes"))
    # Two callers of docs and five of words: one that had looked into the cache and joined too late
    # would search again.
    await until_shared(store, 7)
    go_on.set()
    found = await searches
    assert [[chunk.text for chunk in chunks] for chunks in found] == [["red", "shoes"]] * 3
    assert made == ["red shoes"]


async def test_an_async_context_that_calls_itself_raises_an_error(store: FeatureStore) -> None:
    @retriever(store, cache_ttl="1h")
    async def search(query: str) -> list[str]:
        return [str(await made(query))]

    @context(store)
    async def made(query: str) -> str:
        return str(await search(query))

    with pytest.raises(ContextFailedError, match="same arguments: made → search → made"):
        await made("shoes")


@pytest.fixture
async def one_thread(store: FeatureStore, settings: Settings, clock: ManualClock) -> FeatureStore:
    """Return the store with one thread for sync functions; a slow machine adds no more."""
    await runtime_of(store).rebind(settings.replace(worker={"threads": 1}), clock)
    return store


def sync_threads() -> int:
    """Return the number of threads for sync functions in this process."""
    return sum(thread.name == THREAD_NAME for thread in threading.enumerate())


async def test_a_sync_context_that_calls_itself_takes_no_more_threads(
    one_thread: FeatureStore,
) -> None:
    store = one_thread

    @context(store)
    def made(query: str) -> str:
        return str(store.sync.run(made(query)))

    before = sync_threads()
    with pytest.raises(ContextFailedError, match="same arguments: made → made"):
        await made("shoes")
    assert sync_threads() <= before + 1


async def test_a_context_that_reads_a_feature_that_assembles_it_raises_an_error(
    store: FeatureStore, user: type
) -> None:
    @feature(entity=user)
    async def summary(user_id: str) -> str:
        return str(await made(user_id))

    @context(store)
    async def made(user_id: str) -> str:
        return str(await store.get_feature("summary", user_id))

    with pytest.raises(
        (ContextFailedError, FeatureFailedError), match=r"same arguments: .* → (made|summary)"
    ):
        await made("u1")


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_context_may_call_itself_with_other_arguments_but_not_for_ever(
    one_thread: FeatureStore, kind: str
) -> None:
    store = one_thread

    @context(store, name="count")
    def sync_count(number: int) -> str:
        return f"{number} {store.sync.run(count(number - 1)).content}" if number else "0"

    @context(store, name="async_count")
    async def async_count(number: int) -> str:
        return f"{number} {(await count(number - 1)).content}" if number else "0"

    count = sync_count if kind == "sync" else async_count
    assert (await count(3)).content == "3 2 1 0"
    before = sync_threads()
    with pytest.raises(ContextFailedError, match="32 contexts and retrievers are nested"):
        await count(-1)
    assert sync_threads() <= before + 32


async def test_arguments_that_only_look_the_same_are_not(store: FeatureStore) -> None:
    @context(store)
    async def made(number: float) -> str:
        return str(await made(1)) if type(number) is float else type(number).__name__

    assert (await made(1.0)).content == "int"


async def test_a_list_that_was_changed_is_another_argument(store: FeatureStore) -> None:
    @context(store)
    async def last(words: list[str]) -> str:
        word = words.pop()
        return str(await last(words)) if words else word

    assert (await last(["a", "b", "c"])).content == "a"


async def test_a_task_that_a_function_leaves_behind_is_inside_of_it_no_longer(
    store: FeatureStore,
) -> None:
    left: list[asyncio.Future[str]] = []
    over = asyncio.Event()

    async def again() -> str:
        await over.wait()
        return (await made("shoes")).content

    @context(store)
    async def made(query: str) -> str:
        if not left:
            left.append(asyncio.ensure_future(again()))
        return query

    await made("shoes")
    over.set()
    assert await left[0] == "shoes"


async def test_a_handler_that_searches_in_a_circle_fails_alone(
    store: FeatureStore, user: type
) -> None:
    @retriever(store, cache_ttl="1h")
    async def search(query: str) -> list[str]:
        return [found.text for found in await search(query)]

    @feature(entity=user, trigger="purchase", max_retries=0)
    async def advice(user_id: str, event: ServiceEvent) -> str:
        return str(await search("shoes"))

    await store.publish("purchase", "u1")
    await store.drain()
    (letter,) = await store.dead_letters.list()
    assert "same arguments: search → search" in letter.error
