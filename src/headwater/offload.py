"""Running many small things at once, without a task for each async or a hop for each sync one."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from headwater.answers import Answer, send

T = TypeVar("T")
Runner = Callable[[Iterator[T]], Coroutine[Any, Any, None]]

# A thread that is still busy after this long is probably waiting for something, so another joins.
_PATIENCE_SECONDS = 0.002
# Answers of quick calls travel back together, those of slow ones at once.
_GATHER_SECONDS = 0.0005


async def share(items: Iterable[T], run: Runner[T], limit: int) -> None:
    """Lets runners take items from one stock until it is empty, at most ``limit`` at once.

    The next runner starts when all before it have to wait. Items that never wait are therefore
    all taken by the first one, and cost no task of their own.
    """
    stock = iter(items)

    def portion(number: int) -> Iterator[T]:
        for item in stock:
            if number < limit:
                group.create_task(run(portion(number + 1)))
                number = limit
            yield item

    async with asyncio.TaskGroup() as group:
        await run(portion(1))


calling_loop: contextvars.ContextVar[asyncio.AbstractEventLoop | None] = contextvars.ContextVar(
    "headwater_calling_loop", default=None
)
"""Inside a sync function run here: the loop that waits for it."""


class _Call(NamedTuple):
    context: contextvars.Context
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    future: asyncio.Future[Any]


class Offload:
    """Runs sync functions in threads; calls made in one turn of the loop share one hop.

    Quick functions are best run one after the other in one thread, waiting ones in many: so one
    thread starts, and others join while it has not come through.
    """

    def __init__(self, threads: int) -> None:
        self._most = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="headwater-sync")
        self._calls: deque[_Call] = deque()
        self._draining = 0
        self._scheduled = False
        self._lock = threading.Lock()

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Calls the function in a thread, with this task's context variables."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()
        context.run(calling_loop.set, loop)
        self._calls.append(_Call(context, function, arguments, future))
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._dispatch, loop)
        return await future

    def _dispatch(self, loop: asyncio.AbstractEventLoop) -> None:
        self._scheduled = False
        with self._lock:
            if not self._calls or self._draining >= self._most:
                return
            self._draining += 1
        self._pool.submit(self._drain)
        loop.call_later(_PATIENCE_SECONDS, self._dispatch, loop)

    def _drain(self) -> None:
        answers: list[Answer] = []
        since = time.perf_counter()
        while (call := self._next_call()) is not None:
            answers.append(_perform(call))
            if time.perf_counter() - since > _GATHER_SECONDS:
                send(answers)
                answers = []
                since = time.perf_counter()
        send(answers)

    def _next_call(self) -> _Call | None:
        """The next call; without one, this thread counts as gone."""
        with self._lock:
            if self._calls:
                return self._calls.popleft()
            self._draining -= 1
            return None

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def _perform(call: _Call) -> Answer:
    try:
        return Answer(call.future, call.context.run(call.function, *call.arguments))
    except BaseException as error:  # noqa: BLE001 - a user's function; its caller gets what it raised
        return Answer(call.future, error=error)
