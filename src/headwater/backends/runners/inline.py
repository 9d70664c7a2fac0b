"""Tasks in this process, one after the other."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from typing import TypeVar

from headwater.core.interruptible import in_thread
from headwater.ports import Task

T = TypeVar("T")


class InlineRunner:
    """A runner for tasks that use all cores themselves, as DuckDB does."""

    async def slots(self) -> int:
        return 1

    async def map(self, tasks: Iterable[Task[T]]) -> AsyncGenerator[T, None]:
        for task in tasks:
            yield await in_thread(task.run)
