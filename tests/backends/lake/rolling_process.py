"""Processes that move rows to a lake, without a lock, each of which dies at another step."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import pyiceberg.io.pyarrow  # noqa: F401 - once, before the processes are forked
from pyiceberg.catalog.sql import SqlCatalog

from headwater.backends.connect import connect
from headwater.backends.lake.files import LakeFolder
from headwater.backends.lake.history import LakeHistory
from headwater.backends.lake.tables import LakeTable
from headwater.backends.postgres.lake_tail import PostgresLakeTail
from headwater.backends.sqlite.history_tail import SqliteRecentHistory
from headwater.core.clock import SystemClock
from headwater.settings.loading import load
from headwater.settings.schema import Settings
from tests.backends.duckdb.embedded import embedded
from tests.backends.lake.lakes import SEGMENT_ROWS, lake_of

SERVERS = "servers"
STEPS: list[tuple[type, str]] = [
    (LakeFolder, "write"),
    (LakeTable, "commit"),
    (SqlCatalog, "_write_metadata"),
    (SqlCatalog, "commit_table"),
    (SqliteRecentHistory, "trim"),
    (SqliteRecentHistory, "export"),
    (LakeHistory, "replace"),
    (LakeFolder, "delete"),
    (PostgresLakeTail, "trim"),
    (PostgresLakeTail, "export"),
    (PostgresLakeTail, "_delete_history"),
    (PostgresLakeTail, "_delete_events"),
]


class UnlockedTail(SqliteRecentHistory):
    """A tail whose lock everyone has, as a process that lost it believes."""

    @contextmanager
    def lock(self, *, wait: bool) -> Iterator[bool]:
        yield True


@contextmanager
def _not_locked(self: PostgresLakeTail, *, wait: bool) -> Iterator[bool]:
    yield True


def die_at(step: int) -> None:
    """Let the process die at the n-th beginning or end of a step."""
    reached = itertools.count(1)

    def deadly(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **named: Any) -> Any:
            if next(reached) == step:
                os.kill(os.getpid(), signal.SIGKILL)
            answer = function(*args, **named)
            if next(reached) == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        return call

    for owner, name in STEPS:
        function = getattr(owner, name)
        is_static = name == "_write_metadata"
        setattr(owner, name, staticmethod(deadly(function)) if is_static else deadly(function))


async def roll_on_servers(settings: Settings, step: int) -> None:
    PostgresLakeTail.lock = _not_locked  # type: ignore[method-assign]
    die_at(step)
    backends = await connect(settings, SystemClock())
    while True:
        await backends.offline.maintain()


async def roll(folder: Path, step: int) -> None:
    with embedded(folder / "home", SEGMENT_ROWS) as parts:
        store = lake_of(folder, parts, UnlockedTail(parts.home, parts.erasures))
        die_at(step)
        while True:
            await store.maintain()


def start(where: Path | Settings, step: int) -> int:
    """Start a process that dies at a step; return its id."""
    child = os.fork()
    if not child:
        try:
            asyncio.run(
                roll(where, step) if isinstance(where, Path) else roll_on_servers(where, step)
            )
        finally:
            os._exit(1)  # it was not killed
    return child


def kill_many(where: Path | Settings, kills: int) -> None:
    """Keep two processes running until so many have died, each at a later step."""
    steps = iter(range(1, kills + 1))
    running = {start(where, next(steps)), start(where, next(steps))}
    while running:
        child, status = os.wait()
        running.discard(child)
        if not os.WIFSIGNALED(status):
            sys.exit(f"a writer ended with {status}")
        if (step := next(steps, None)) is not None:
            running.add(start(where, step))


if __name__ == "__main__":
    # A folder of a home and a lake, or the settings of the environment.
    kill_many(Path(sys.argv[1]) if sys.argv[1] != SERVERS else load(), int(sys.argv[2]))
