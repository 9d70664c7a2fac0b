"""Work that several wait for at once: done one time, given to all, never waiting for itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from functools import partial
from typing import Any, Generic, TypeVar

T = TypeVar("T")

Unheard = Callable[[BaseException], None]
"""Told why work failed that nobody waited for any more."""


class _Work:
    """Something under way, how many wait for it, and what it waits for itself."""

    __slots__ = ("awaited", "task", "waiting")

    def __init__(self) -> None:
        self.task: asyncio.Task[Any]
        self.waiting = 0
        self.awaited: list[_Work] = []

    def waits_for(self, other: _Work) -> bool:
        return self is other or any(work.waits_for(other) for work in self.awaited)


_inside: ContextVar[_Work | None] = ContextVar("headwater_inside", default=None)
"""The shared work that runs here, if one does."""


class SingleFlight(Generic[T]):
    """Lets those who want the same thing at the same time, on the same loop, wait for one."""

    def __init__(self) -> None:
        self._running: dict[tuple[int, str], _Work] = {}

    async def do(
        self, key: str, begin: Callable[[], Coroutine[Any, Any, T]], unheard: Unheard
    ) -> T:
        """What the work of that key gives; it goes on when those who wait for it give up.

        Raises RecursionError where that work, through others, waits for the one that asks here.
        """
        place = (id(asyncio.get_running_loop()), key)
        work = self._running.get(place) or self._begin(place, begin, unheard)
        around = _inside.get() or _Work()
        if work.waits_for(around):
            raise RecursionError("it calls itself with the same arguments, and waits for that")
        around.awaited.append(work)
        work.waiting += 1
        try:
            # Unlike a plain await, this leaves the work alone when the one who waits is cancelled.
            await asyncio.wait((work.task,))
            result: T = work.task.result()
            return result
        finally:
            work.waiting -= 1
            around.awaited.remove(work)

    def _begin(
        self,
        place: tuple[int, str],
        begin: Callable[[], Coroutine[Any, Any, T]],
        unheard: Unheard,
    ) -> _Work:
        work = self._running[place] = _Work()
        work.task = asyncio.ensure_future(_run(work, begin))
        work.task.add_done_callback(partial(self._end, place, work, unheard))
        return work

    def _end(
        self, place: tuple[int, str], work: _Work, unheard: Unheard, task: asyncio.Task[T]
    ) -> None:
        self._running.pop(place, None)
        error = None if task.cancelled() else task.exception()
        if error is not None and not work.waiting:
            unheard(error)


async def _run(work: _Work, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
    _inside.set(work)
    return await begin()
