"""A function that cancels its task or exits, or whose caller has gone, ends only its own call."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from headwater import FeatureStore, ServiceEvent, context, feature, retriever
from headwater.errors import ContextFailedError, RetrieverFailedError
from headwater.http.app import create_app
from tests.engine.support import records, until


async def exits() -> str:
    sys.exit(3)


async def awaits_what_was_cancelled() -> str:
    task = asyncio.create_task(asyncio.sleep(60))
    task.cancel()
    await task
    return "never"


def exits_in_a_thread() -> str:
    sys.exit(3)


def raises_in_a_thread() -> str:
    raise asyncio.CancelledError


ENDINGS = pytest.mark.parametrize(
    ("function", "raised"),
    [
        (exits, r"SystemExit\(3\)"),
        (exits_in_a_thread, r"SystemExit\(3\)"),
        (awaits_what_was_cancelled, r"CancelledError\("),
        (raises_in_a_thread, r"CancelledError\("),
    ],
)


@ENDINGS
@pytest.mark.parametrize("cache_ttl", [None, "5m"])
async def test_a_retriever_fails_in_its_own_name(
    store: FeatureStore, function: Callable[[], Any], raised: str, cache_ttl: str | None
) -> None:
    search = retriever(store, name="search", cache_ttl=cache_ttl)(function)
    for _ in range(2):
        with pytest.raises(RetrieverFailedError, match=rf"'search' failed: .*raised {raised}"):
            await search()


@ENDINGS
async def test_a_context_fails_in_its_own_name(
    store: FeatureStore, function: Callable[[], Any], raised: str
) -> None:
    made = context(store, name="made")(function)
    with pytest.raises(ContextFailedError, match=rf"'made' failed: .*raised {raised}") as caught:
        await made()
    assert caught.value.raised.__cause__ is not None


@ENDINGS
async def test_a_surrounding_task_group_sees_the_failure(
    store: FeatureStore, function: Callable[[], Any], raised: str
) -> None:
    made = context(store, name="made")(function)
    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.TaskGroup() as group:
            group.create_task(made())
    assert [type(error) for error in caught.value.exceptions] == [ContextFailedError]


@pytest.fixture
async def client(store: FeatureStore) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(create_app(store)), base_url="http://localhost"
    ) as client:
        key = store.settings.api_key
        if key is not None:
            client.headers["X-API-Key"] = key
        yield client


@ENDINGS
@pytest.mark.parametrize("kind", ["context", "retriever"])
async def test_over_http_it_is_a_problem_like_any_other(
    store: FeatureStore,
    client: httpx.AsyncClient,
    function: Callable[[], Any],
    raised: str,
    kind: str,
) -> None:
    search = retriever(store, name="search", cache_ttl="5m")(function)

    @context(store)
    async def searching() -> str:
        return str(await search())

    context(store, name="ending")(function)
    name = "ending" if kind == "context" else "searching"
    answer = await client.post(f"/v1/contexts/{name}", json={"params": {}})
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert answer.json()["type"] == f"urn:headwater:problem:{kind}-failed"


async def test_a_function_that_exits_while_it_is_cancelled_ends_nothing_else(
    store: FeatureStore, user: type
) -> None:
    begun = asyncio.Event()

    async def waits() -> str:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            sys.exit(3)
        return "never"

    @feature(entity=user)
    async def waiting(user_id: str) -> str:
        return await waits()

    made = context(store, name="made")(waits)
    calls: list[Callable[[], Any]] = [made, lambda: store.get_feature("waiting", "u1")]
    for call in calls:
        begun.clear()
        task = asyncio.ensure_future(call())
        await begun.wait()
        task.cancel()
        with pytest.raises((ContextFailedError, asyncio.CancelledError)):
            await task


async def test_a_cancelled_caller_gets_its_cancellation(store: FeatureStore) -> None:
    begun = asyncio.Event()

    @retriever(store)
    async def search() -> list[str]:
        begun.set()
        await asyncio.sleep(60)
        return []

    call = asyncio.ensure_future(search())
    await begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await search()


async def test_a_search_that_fails_without_callers_is_logged(
    store: FeatureStore, capsys: pytest.CaptureFixture[str]
) -> None:
    begun, go_on, told = asyncio.Event(), asyncio.Event(), []
    asyncio.get_running_loop().set_exception_handler(lambda _, problem: told.append(problem))

    @retriever(store, cache_ttl="5m")
    async def search() -> list[str]:
        begun.set()
        await go_on.wait()
        raise OSError("the customer's own words")

    call = asyncio.ensure_future(search())
    await begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    go_on.set()
    said: list[dict[str, Any]] = []

    def logged() -> bool:
        said.extend(records(capsys.readouterr().err, "search failed after its callers had gone"))
        return bool(said)

    await until(logged)
    gc.collect()
    assert [(record["retriever"], record["error"]) for record in said] == [("search", "OSError")]
    assert told == []


async def test_a_worker_goes_on_after_a_handler_whose_search_exits(
    store: FeatureStore, user: type
) -> None:
    search = retriever(store, name="search", cache_ttl="5m")(exits)

    @feature(entity=user, trigger="purchase", max_retries=0)
    async def advice(user_id: str, event: ServiceEvent) -> str:
        return str(await search())

    await store.publish("purchase", "u1")
    await store.publish("visit", "u1", {"plan": "gold"})
    await store.drain()
    (letter,) = await store.dead_letters.list()
    assert (letter.feature, await store.get_feature("plan", "u1")) == ("advice", "gold")
