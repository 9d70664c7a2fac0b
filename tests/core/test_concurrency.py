"""Concurrent runners share an iterator, and the failure of one stops all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from headwater.core.concurrency import run_concurrently
from headwater.errors import BackendError


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
