"""Concurrent runners share an iterator, and the failure of one stops all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextvars import copy_context
from typing import Any

import pytest

from headwater.core.concurrency import both, run_concurrently
from headwater.core.thread_calls import ThreadCall
from headwater.core.thread_offload import Offload
from headwater.errors import BackendError
from tests.engine.support import PATIENCE_SECONDS


@pytest.mark.parametrize("turns", range(8))
async def test_a_run_may_fail_while_the_next_one_starts(turns: int) -> None:
    loop = asyncio.get_running_loop()
    strange: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: strange.append(context))
    answer: asyncio.Future[None] = loop.create_future()
    never = asyncio.Event()

    async def run(portion: Iterator[int]) -> None:
        for number in portion:
            if number == 1:
                await answer
                raise BackendError("away")
            await never.wait()

    async def connection() -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        answer.set_result(None)

    answering = asyncio.create_task(connection())
    with pytest.raises(BackendError, match="away"):
        await run_concurrently(range(10), run, 8)
    await answering
    assert strange == []


class Declared:
    name = "function"


async def test_a_parked_coroutine_is_resumed_while_all_others_wait() -> None:
    offload = Offload(threads=2, max_hung=2)
    is_resumed = asyncio.Event()

    async def take(items: Iterator[int]) -> None:
        for number in items:
            if number:
                await is_resumed.wait()
            else:
                await ThreadCall(offload, Declared(), 60.0, copy_context(), int)
                is_resumed.set()

    async with asyncio.timeout(PATIENCE_SECONDS):
        await run_concurrently(range(4), take, 8)
    offload.close()


async def test_a_failure_cancels_the_calls_that_have_not_begun() -> None:
    offload = Offload(threads=1, max_hung=2)
    has_begun, is_released = threading.Event(), threading.Event()
    ran: list[int] = []

    def block(number: int) -> None:
        ran.append(number)
        has_begun.set()
        is_released.wait()

    async def take(items: Iterator[int]) -> None:
        for number in items:
            if number == 2:
                await asyncio.to_thread(has_begun.wait)
                raise BackendError("away")
            await ThreadCall(offload, Declared(), 60.0, copy_context(), block, number)

    with pytest.raises(BackendError, match="away"):
        await run_concurrently(range(3), take, 8)
    is_released.set()
    last = ThreadCall(offload, Declared(), 60.0, copy_context(), ran.append, 9)
    await offload.call(last)
    assert ran == [0, 9]
    offload.close()


async def test_a_quick_call_does_not_wait_for_a_slow_one_that_was_started_after_it() -> None:
    offload = Offload(threads=1, max_hung=2)
    is_released = threading.Event()
    quick = ThreadCall(offload, Declared(), 60.0, copy_context(), int)
    slow = ThreadCall(offload, Declared(), 60.0, copy_context(), is_released.wait)
    answering = asyncio.ensure_future(offload.call(quick))
    blocking = asyncio.ensure_future(offload.call(slow))
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await answering == 0
    assert not blocking.done()
    is_released.set()
    assert await blocking is True
    offload.close()


async def test_two_coroutines_run_concurrently_if_the_first_one_waits() -> None:
    first_waits, second_ran = asyncio.Event(), asyncio.Event()

    async def first() -> str:
        first_waits.set()
        await second_ran.wait()
        return "first"

    async def second() -> str:
        await first_waits.wait()
        second_ran.set()
        return "second"

    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await both(first(), second()) == ("first", "second")


async def test_the_second_of_two_coroutines_has_no_task_if_the_first_one_never_waits() -> None:
    async def task() -> object:
        return asyncio.current_task()

    assert await both(task(), task()) == (asyncio.current_task(), asyncio.current_task())


@pytest.mark.parametrize("turns", range(4))
async def test_an_error_in_the_first_of_two_coroutines_cancels_the_second(turns: int) -> None:
    strange: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: strange.append(context))
    started: list[asyncio.Task[Any] | None] = []

    async def first() -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        raise BackendError("away")

    async def second() -> None:
        started.append(asyncio.current_task())
        await asyncio.Event().wait()

    with pytest.raises(BackendError, match="away"):
        await both(first(), second())
    await asyncio.gather(*filter(None, started), return_exceptions=True)
    assert all(task is not None and task.cancelled() for task in started)
    assert strange == []


async def test_a_cancelled_call_of_two_coroutines_cancels_both() -> None:
    ended: list[str] = []

    async def waiting(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    running = asyncio.create_task(both(waiting("first"), waiting("second")))
    for _ in range(3):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    await asyncio.sleep(0)
    assert running.cancelled()
    assert ended == ["first", "second"]
