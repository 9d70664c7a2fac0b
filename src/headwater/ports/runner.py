"""Runner: independent tasks, each of some buckets, run elsewhere."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class Task(Protocol[T_co]):
    """Work that any process can do: it is pickled, reads files or a store, and writes files."""

    @property
    def inputs(self) -> Sequence[Path]:
        """Files that it reads, so that a process that does not see them can be told apart."""

    def run(self) -> T_co:
        """Do the work; doing it twice, also at the same time, has the effect of doing it once."""


class Runner(Protocol):
    """Where tasks run: in this process, in local processes or, by an adapter, on a cluster."""

    async def slots(self) -> int:
        """Return how many tasks can run at the same time; 1 if each may use all cores itself."""

    def map(self, tasks: Iterable[Task[T]]) -> AsyncGenerator[T, None]:
        """Run the tasks and yield their results as they finish, in any order.

        A task whose process dies is run again, three times in all. If a task raises, its error is
        raised here, and tasks that have not begun are not run. When the iteration ends, also by an
        error or by cancellation, no task is running any more.
        """
