"""One run of a piece of work for all who ask for it at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

_CLOSING_SECONDS = 10.0


class CoalescedTask:
    """Work that everybody wants to have been begun after they asked.

    Who asks while a run is under way shares the next one, because that run may already have
    passed by what they want it to see.
    """

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def __call__(self) -> None:
        if self._next is None:
            self._next = asyncio.create_task(self._run(self._running))
            self._next.add_done_callback(_look_at)
        # Who gives up does not stop the work of the others.
        await asyncio.shield(self._next)

    async def _run(self, before: asyncio.Task[None] | None) -> None:
        if before is not None and not before.done():
            await asyncio.wait([before])
        self._running, self._next = self._next, None
        await self._work()

    async def close(self) -> None:
        """Waits for what runs, if it ends soon."""
        tasks = [task for task in (self._running, self._next) if task is not None]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_CLOSING_SECONDS)
            for task in late:
                task.cancel()


def _look_at(task: asyncio.Task[None]) -> None:
    """Takes note of an error that nobody waits for any more; the next run meets it again."""
    if not task.cancelled():
        task.exception()
