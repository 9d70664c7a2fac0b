"""Functions of contexts and retrievers have a time limit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from functools import wraps
from typing import Any

import pytest

from headwater import FeatureStore, context, feature, retriever
from headwater.declarations.runtime import runtime_of
from headwater.errors import (
    ContextFailedError,
    ContextTimeoutError,
    HandlerTimeoutError,
    RetrieverTimeoutError,
)
from headwater.settings.schema import Settings
from headwater.testing import ManualClock

NEVER = 60.0


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.replace(context={"timeout": 0.2}, worker={"threads": 1})


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """Yield the event that a hanging thread waits for; set it at the end."""
    event = threading.Event()
    yield event
    event.set()


async def test_an_async_function_that_does_not_end_is_cancelled_and_named(
    store: FeatureStore,
) -> None:
    cancelled = []

    @context(store)
    async def hangs() -> str:
        try:
            await asyncio.sleep(NEVER)
        except asyncio.CancelledError:
            cancelled.append(1)
            raise
        return "never"

    with pytest.raises(
        ContextTimeoutError, match=r"'hangs' failed: .*timed out after 0\.2 s"
    ) as caught:
        await hangs()
    assert "HEADWATER_CONTEXT_TIMEOUT" in str(caught.value)
    assert isinstance(caught.value, ContextFailedError)
    assert (caught.value.context, caught.value.seconds, cancelled) == ("hangs", 0.2, [1])
    assert (await store.list_contexts()).contexts == []


async def test_a_retriever_that_does_not_end_fails_the_context_in_its_own_name(
    store: FeatureStore,
) -> None:
    @retriever(store)
    async def search() -> list[str]:
        await asyncio.sleep(NEVER)
        return []

    @context(store, timeout="20s")
    async def made() -> str:
        return str(await search())

    with pytest.raises(RetrieverTimeoutError, match="'search' failed") as caught:
        await made()
    assert (caught.value.retriever, caught.value.seconds) == ("search", 0.2)


async def test_a_context_may_go_on_without_a_retriever_that_took_too_long(
    store: FeatureStore,
) -> None:
    @retriever(store)
    async def search() -> list[str]:
        await asyncio.sleep(NEVER)
        return []

    @context(store, timeout="20s")
    async def made() -> str:
        try:
            return str(await search())
        except RetrieverTimeoutError:
            await asyncio.sleep(0)
            return "without"

    assert (await made()).content == "without"


async def test_nested_time_limits_raise_one_error_and_cancel_no_other_call(
    store: FeatureStore,
) -> None:
    @retriever(store)
    async def search() -> list[str]:
        await asyncio.sleep(NEVER)
        return []

    @context(store)
    async def inner() -> str:
        return str(await search())

    @context(store)
    async def outer() -> str:
        return str(await inner())

    with pytest.raises((ContextTimeoutError, RetrieverTimeoutError)):
        await outer()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_all_callers_of_a_shared_search_time_out_and_the_next_one_searches_again(
    store: FeatureStore,
) -> None:
    seconds = NEVER

    @retriever(store, cache_ttl="1m")
    async def search() -> list[str]:
        await asyncio.sleep(seconds)
        return ["found"]

    answers = await asyncio.gather(search(), search(), return_exceptions=True)
    assert [type(answer) for answer in answers] == [RetrieverTimeoutError] * 2
    seconds = 0
    assert [found.text for found in await search()] == ["found"]


@pytest.mark.parametrize("kind", ["context", "retriever"])
async def test_a_hung_thread_is_abandoned_and_replaced(
    store: FeatureStore, released: threading.Event, kind: str
) -> None:
    @context(store)
    def hangs() -> str:
        released.wait()
        return "late"

    @retriever(store)
    def searches() -> list[str]:
        released.wait()
        return ["late"]

    @context(store, timeout="20s")
    def quick() -> str:
        return threading.current_thread().name

    slow, error = (
        (hangs, ContextTimeoutError) if kind == "context" else (searches, RetrieverTimeoutError)
    )
    with pytest.raises(error):
        await slow()
    # There is one place for a thread, and it is free.
    assert (await quick()).content.startswith("headwater-sync")


async def test_a_sync_function_that_returns_an_awaitable_has_the_time_limit(
    store: FeatureStore,
) -> None:
    def hidden(function: Any) -> Any:
        @wraps(function)
        def call(*args: Any) -> Any:
            return function(*args)

        del call.__wrapped__
        return call

    @context(store)
    @hidden
    async def hangs() -> str:
        await asyncio.sleep(NEVER)
        return "never"

    with pytest.raises(ContextTimeoutError):
        await hangs()


@pytest.mark.parametrize("kind", ["context", "retriever"])
async def test_a_declaration_may_give_more_or_less_time(
    settings: Settings, store: FeatureStore, clock: ManualClock, kind: str
) -> None:
    async def waits(seconds: float) -> list[str]:
        await asyncio.sleep(seconds)
        return ["in time"]

    declare: Any = context if kind == "context" else retriever
    longer = declare(store, name="longer", timeout="20s")(waits)
    shorter = declare(store, name="shorter", timeout="50ms")(waits)
    await longer(0.5)
    await runtime_of(store).rebind(settings.replace(context={"timeout": 20}), clock)
    with pytest.raises((ContextTimeoutError, RetrieverTimeoutError), match=r"0\.05 s"):
        await shorter(NEVER)


async def test_features_have_the_time_of_handlers(
    settings: Settings, store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user)
    async def slow(user_id: str) -> str:
        await asyncio.sleep(NEVER)
        return "never"

    @context(store, timeout="20s")
    async def made(user_id: str) -> str:
        return str(await store.get_feature("slow", user_id))

    await runtime_of(store).rebind(settings.replace(worker={"handler_timeout": 0.05}), clock)
    with pytest.raises(HandlerTimeoutError):
        await made("u1")


async def test_a_cancelled_call_raises_no_timeout_error(store: FeatureStore) -> None:
    begun = asyncio.Event()

    @context(store, timeout="20s")
    async def made() -> str:
        begun.set()
        await asyncio.sleep(NEVER)
        return "never"

    call = asyncio.ensure_future(made())
    await begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
