"""Runner: independent tasks, each of some buckets, run elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class Task(Protocol[T_co]):
    """Work that any process can do: it is pickled, reads files or a store, and writes files."""

    def run(self) -> T_co:
        """Do the work; doing it twice has the effect of doing it once."""


class Runner(Protocol):
    """Where tasks run: in this process, in local processes or, by an adapter, on a cluster."""

    def map(self, tasks: Iterable[Task[T]]) -> AsyncIterator[T]:
        """Run the tasks and yield their results as they finish, in any order.

        If a task raises, its error is raised here, and tasks that have not begun are not run.
        """
