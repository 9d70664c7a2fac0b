"""Running many small things at once, without a task for each async or a hop for each sync one."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

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
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


class _Answer(NamedTuple):
    future: asyncio.Future[Any]
    result: Any
    error: BaseException | None


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

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Calls the function in a thread, with this task's context variables."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()
        context.run(calling_loop.set, loop)
        self._calls.append(_Call(context, function, arguments, loop, future))
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._dispatch, loop)
        return await future

    def _dispatch(self, loop: asyncio.AbstractEventLoop) -> None:
        self._scheduled = False
        if not self._calls or self._draining >= self._most:
            return
        self._draining += 1
        self._pool.submit(self._drain)
        loop.call_later(_PATIENCE_SECONDS, self._dispatch, loop)

    def _drain(self) -> None:
        answers: list[tuple[asyncio.AbstractEventLoop, _Answer]] = []
        since = time.perf_counter()
        try:
            while self._calls:
                try:
                    call = self._calls.popleft()
                except IndexError:  # another thread took the last one
                    break
                answers.append((call.loop, _perform(call)))
                if time.perf_counter() - since > _GATHER_SECONDS:
                    _send(answers)
                    answers = []
                    since = time.perf_counter()
        finally:
            self._draining -= 1
            _send(answers)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def _perform(call: _Call) -> _Answer:
    try:
        return _Answer(call.future, call.context.run(call.function, *call.arguments), None)
    except BaseException as error:  # noqa: BLE001 - a user's function; its caller gets whatever it raised
        return _Answer(call.future, None, error)


def _send(answers: list[tuple[asyncio.AbstractEventLoop, _Answer]]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[_Answer]] = {}
    for loop, answer in answers:
        by_loop.setdefault(loop, []).append(answer)
    for loop, group in by_loop.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, group)


def settle(answers: Iterable[tuple[asyncio.Future[Any], Any, BaseException | None]]) -> None:
    """Gives futures their results or errors, passing over those nobody waits for any more."""
    for future, result, error in answers:
        if future.done():
            continue
        if error is None:
            future.set_result(result)
        elif isinstance(error, StopIteration):
            # A future cannot carry StopIteration; it would end the coroutine that awaits it.
            future.set_exception(RuntimeError(f"the function raised StopIteration: {error}"))
        else:
            future.set_exception(error)
