"""Tasks on Ray: each is a remote call, which Ray makes again if its worker dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
import ray
from ray.exceptions import RayError

from headwater.backends.runners.processes import MAX_STARTS
from headwater.backends.runners.sent_task import SentTask, TaskAnswer
from headwater.errors import BackendUnavailableError
from headwater.ports import Task
from headwater.settings.groups import RunnerSettings

T = TypeVar("T")


class RayRunner:
    """Runs tasks on the cluster of this driver, or on the one that the settings name."""

    def __init__(self, settings: RunnerSettings) -> None:
        self._settings = settings

    async def slots(self) -> int:
        resources = await asyncio.to_thread(self._resources)
        return max(1, int(resources.get("CPU", 1)))

    async def map(self, tasks: Iterable[Task[T]]) -> AsyncGenerator[T, None]:
        sent = SentTask.of(tasks)
        references = await asyncio.to_thread(self._submit, sent)
        running = {
            asyncio.wrap_future(reference.future()): (reference, task)
            for reference, task in zip(references, sent, strict=True)
        }
        try:
            while running:
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for future in done:
                    _, task = running.pop(future)
                    yield _answer(task, future).result()
        finally:
            await asyncio.shield(_end(running))

    def _resources(self) -> dict[str, float]:
        self._connect()
        resources: dict[str, float] = ray.cluster_resources()
        return resources

    def _connect(self) -> None:
        if ray.is_initialized():
            return
        settings = self._settings
        options: dict[str, Any] = {"logging_level": "warning"}
        if settings.address:
            options["address"] = settings.address
        elif settings.processes:
            # Otherwise Ray looks for a cluster on this machine first, and refuses the number then.
            options |= {"address": "local", "num_cpus": settings.processes}
        try:
            ray.init(**options)
        except ConnectionError as error:
            raise BackendUnavailableError(
                f"cannot connect to Ray at runner.address = {settings.address!r}: {error}; check "
                "that it is running, and that RAY_AUTH_MODE and RAY_AUTH_TOKEN are those of it"
            ) from error

    def _submit(self, tasks: Sequence[SentTask]) -> list[Any]:
        self._connect()
        options = {"num_cpus": 1, "max_retries": MAX_STARTS - 1} | _options(self._settings)
        function = ray.remote(**options)(SentTask.run)
        return [function.remote(task) for task in tasks]


def _options(settings: RunnerSettings) -> dict[str, Any]:
    """Return the options of tasks, whose texts may be JSON."""
    options: dict[str, Any] = {}
    for name, text in settings.options.items():
        options[name] = text
        with suppress(msgspec.DecodeError):
            options[name] = msgspec.json.decode(text)
    return options


def _answer(task: SentTask, future: asyncio.Future[TaskAnswer]) -> TaskAnswer:
    try:
        return future.result()
    except RayError as error:
        raise task.lost(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}") from error


async def _end(running: Mapping[asyncio.Future[TaskAnswer], tuple[Any, SentTask]]) -> None:
    """End the tasks that run, and do not begin the others; return when none is running."""
    for reference, _ in running.values():
        await asyncio.to_thread(ray.cancel, reference, force=True)
    for future in running:
        with suppress(RayError):
            await future
