"""Running small coroutines concurrently, without a task for each."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from types import coroutine
from typing import Any, Generic, TypeVar

from headwater.core.thread_calls import ThreadCall
from headwater.errors import BackendError

T = TypeVar("T")
U = TypeVar("U")
Taking = Coroutine[Any, Any, None]
"""A coroutine that takes items until none is left."""
Take = Callable[[Iterator[T]], Taking]


async def both(first: Coroutine[Any, Any, T], second: Coroutine[Any, Any, U]) -> tuple[T, U]:
    """Run two coroutines concurrently: the second starts when the first one waits.

    Only then does it need a task. An error in the first one cancels the second.
    """
    try:
        awaited = first.send(None)
    except StopIteration as ended:
        return ended.value, await second
    except BaseException:
        second.close()
        raise
    task = asyncio.create_task(second)
    try:
        result = await _continued(first, awaited)
    except BaseException:
        # The caller gets one error; that of a task which ended before counts as seen.
        if not task.cancel() and not task.cancelled():
            task.exception()
        raise
    return result, await task


@coroutine
def _continued(started: Coroutine[Any, Any, T], awaited: object) -> Generator[Any, Any, T]:
    """Continue a coroutine that waits for something, in this task, until it ends."""
    try:
        while True:
            try:
                answer = yield awaited
            except BaseException as error:  # noqa: BLE001 - it is the coroutine's to handle
                awaited = started.throw(error)
            else:
                awaited = started.send(answer)
    except StopIteration as ended:
        result: T = ended.value
        return result


async def run_concurrently(items: Iterable[T], take: Take[T], limit: int) -> None:
    """Let at most ``limit`` concurrent coroutines take items until none is left.

    The next coroutine starts when all others wait. Items that never wait are therefore all taken by
    the first one, and need no task. A coroutine that awaits a `ThreadCall` needs none either: it
    is parked until the result is there, and then resumed by any task. An error in one coroutine
    ends all of them and is raised.
    """
    runners = _Runners(items, take, limit)
    try:
        async with runners.group:
            await runners.work()
    except BaseExceptionGroup as errors:
        # Backend errors are temporary, so any other error is raised first.
        permanent = errors.split(BackendError)[1] or errors
        raise permanent.exceptions[0] from None
    finally:
        runners.close()


class _Runners(Generic[T]):
    """The items that are left, and the tasks that run the coroutines.

    It has no reference cycle unless a coroutine fails: a worker makes one for each batch, and
    garbage collection pauses the whole process.
    """

    __slots__ = (
        "_is_exhausted",
        "_items",
        "_limit",
        "_listener",
        "_loop",
        "_next",
        "_parked",
        "_ready",
        "_take",
        "_unfinished",
        "group",
    )

    def __init__(self, items: Iterable[T], take: Take[T], limit: int) -> None:
        self._items = iter(items)
        self._is_exhausted = False
        self._take = take
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._parked: dict[ThreadCall[Any], Taking] = {}
        self._ready: deque[Taking] = deque()
        self._unfinished = 0
        self._listener: asyncio.Future[None] | None = None
        """Awaited by a task that has nothing to do until a parked coroutine is ready."""
        self._next: asyncio.Handle | None = None
        self.group = asyncio.TaskGroup()

    async def work(self) -> None:
        """Run coroutines until none is left, or another task waits for the parked ones."""
        while True:
            if self._next is None:
                # The loop calls it when this task waits, or never.
                self._next = self._loop.call_soon(self._start_next)
            while (taking := self._next_coroutine()) is not None:
                try:
                    awaited = taking.send(None)
                except StopIteration:
                    self._finish()
                    continue
                if isinstance(awaited, ThreadCall):
                    self._park(taking, awaited)
                else:
                    await self._suspended(taking, awaited)
            if self._next is not None:
                self._next.cancel()
                self._next = None
            if not self._parked or self._listener is not None:
                return
            self._listener = self._loop.create_future()
            try:
                await self._listener
            finally:
                self._listener = None

    def _next_coroutine(self) -> Taking | None:
        if self._ready:
            return self._ready.popleft()
        if self._is_exhausted or self._unfinished >= self._limit:
            return None
        self._unfinished += 1
        return self._take(self._items)

    def _finish(self) -> None:
        self._unfinished -= 1
        self._is_exhausted = True

    def _park(self, taking: Taking, call: ThreadCall[Any]) -> None:
        self._parked[call] = taking
        call.start(self._resume)

    @coroutine
    def _suspended(self, taking: Taking, wanted: object) -> Generator[Any, Any, None]:
        """Continue a coroutine that waits for something, in this task, until it ends or parks."""
        try:
            while not isinstance(wanted, ThreadCall):
                try:
                    answer = yield wanted
                except BaseException as error:  # noqa: BLE001 - it is the coroutine's to handle
                    wanted = taking.throw(error)
                else:
                    wanted = taking.send(answer)
        except StopIteration:
            self._finish()
        else:
            self._park(taking, wanted)

    def _resume(self, call: ThreadCall[Any]) -> None:
        """Let a task continue the coroutine that awaits the call."""
        taking = self._parked.pop(call, None)
        if taking is None:
            return  # another coroutine has failed
        self._ready.append(taking)
        if self._listener is not None:
            if not self._listener.done():
                self._listener.set_result(None)
        elif self._next is None:
            self._next = self._loop.call_soon(self._start_next)

    def _start_next(self) -> None:
        self._next = None
        working = self.work()
        try:
            self.group.create_task(working)
        except RuntimeError:
            working.close()  # another coroutine has failed, and the group is ending

    def close(self) -> None:
        """Cancel the calls whose results are no longer wanted."""
        parked, self._parked = self._parked, {}
        for call, taking in parked.items():
            call.cancel()
            taking.close()
        while self._ready:
            self._ready.popleft().close()
