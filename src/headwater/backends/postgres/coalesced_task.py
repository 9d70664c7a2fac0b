"""One run of a task, shared by concurrent callers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

_CLOSING_SECONDS = 10.0


class CoalescedTask:
    """A task of which each caller needs a run that started after the call.

    Callers that come during a run share the next one: the current run may already have passed
    the rows that they need.
    """

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def __call__(self) -> None:
        if self._next is None:
            self._next = asyncio.create_task(self._run(self._running))
            self._next.add_done_callback(_retrieve_exception)
        # A cancelled caller does not cancel the run for the others.
        await asyncio.shield(self._next)

    async def _run(self, before: asyncio.Task[None] | None) -> None:
        if before is not None and not before.done():
            await asyncio.wait([before])
        self._running, self._next = self._next, None
        await self._work()

    async def close(self) -> None:
        """Wait for the runs for a limited time, then cancel them."""
        tasks = [task for task in (self._running, self._next) if task is not None]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_CLOSING_SECONDS)
            for task in late:
                task.cancel()


def _retrieve_exception(task: asyncio.Task[None]) -> None:
    """Mark the error as retrieved if all callers are gone; the next run meets it again."""
    if not task.cancelled():
        task.exception()
