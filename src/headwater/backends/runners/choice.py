"""The runner that the settings choose."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from functools import cached_property
from importlib import import_module
from typing import TypeVar

from headwater.backends.runners.inline import InlineRunner
from headwater.backends.runners.processes import ProcessRunner
from headwater.errors import MissingExtraError
from headwater.ports import Runner, Task
from headwater.settings.groups import RunnerSettings

T = TypeVar("T")

_CLUSTERS = {"ray": "RayRunner", "spark": "SparkRunner"}


def runner_of(settings: RunnerSettings, *, of_frames: bool = False) -> Runner:
    """Return the runner of tasks; for frames, DuckDB's threads of this process by default."""
    if settings.kind in _CLUSTERS:
        return _ClusterRunner(settings)
    if settings.kind == "auto" and of_frames:
        return InlineRunner()
    return ProcessRunner(settings.processes or os.cpu_count() or 1)


class _ClusterRunner:
    """A runner whose driver is imported when it is needed: that takes longer than most reads."""

    def __init__(self, settings: RunnerSettings) -> None:
        self._settings = settings

    @cached_property
    def _loaded(self) -> Runner:
        kind = self._settings.kind
        try:
            module = import_module(f"headwater.backends.runners.on_{kind}")
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("headwater"):
                raise
            raise MissingExtraError(f"runner.kind = {kind!r}", kind) from error
        runner: Runner = vars(module)[_CLUSTERS[kind]](self._settings)
        return runner

    async def slots(self) -> int:
        await asyncio.to_thread(lambda: self._loaded)
        return await self._loaded.slots()

    async def map(self, tasks: Iterable[Task[T]]) -> AsyncGenerator[T, None]:
        await asyncio.to_thread(lambda: self._loaded)
        async with aclosing(self._loaded.map(tasks)) as results:
            async for result in results:
                yield result
