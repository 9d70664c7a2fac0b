"""Tasks that concurrent callers share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from typing import Any, Generic, TypeVar

from headwater.errors import BackendError, ClosedError

T = TypeVar("T")

Work = Callable[[], Coroutine[Any, Any, T]]


class SharedTasks(Generic[T]):
    """At most one running task per key; all callers get its result or its error.

    A caller that is cancelled does not cancel the task for the others.
    """

    def __init__(self) -> None:
        self._running: dict[Hashable, asyncio.Task[T | BackendError]] = {}

    async def run(self, key: Hashable, work: Work[T]) -> T:
        """Join the task of the key, or start one; raise its BackendError."""
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.get_running_loop().create_task(_outcome(work))
            task.add_done_callback(partial(self._end, key))
        await asyncio.wait([task])
        if task.cancelled():
            raise ClosedError("the store is closed")
        outcome = task.result()
        if isinstance(outcome, BackendError):
            # One exception object would collect the tracebacks of all callers.
            raise type(outcome)(str(outcome)) from outcome
        return outcome

    def _end(self, key: Hashable, _: object) -> None:
        del self._running[key]

    async def close(self) -> None:
        """Cancel all tasks and wait for their end."""
        tasks = [*self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _outcome(work: Work[T]) -> T | BackendError:
    try:
        return await work()
    except BackendError as error:
        return error
