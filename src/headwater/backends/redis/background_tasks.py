"""Background tasks per partition, so that a slow server delays only its own partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from headwater.core.logging import Outage
from headwater.errors import BackendError

_TIMEOUT = 0.2
_INSIST_TIMEOUT = 1.0
_RETRY_PAUSE = 1.0

Work = Callable[[], Awaitable[None]]


class PartitionTasks:
    """At most one task per partition; a failed task can start again after a pause."""

    def __init__(self, part: str, problem: str, on_late: Callable[[], None]) -> None:
        self._outage = Outage(part)
        self._problem = problem
        self._on_late = on_late
        self._running: dict[int, asyncio.Task[bool]] = {}

    async def run(self, works: Mapping[int, Work], *, insist: bool = False) -> bool:
        """Start tasks for partitions without one; return True if one succeeds before a timeout.

        ``insist`` waits longer, and for tasks that were already running. Use it if there is
        nothing else to do.
        """
        started = [self._start(*item) for item in works.items() if item[0] not in self._running]
        awaited = [self._running[partition] for partition in works] if insist else started
        if not awaited:
            return False
        timeout = _INSIST_TIMEOUT if insist else _TIMEOUT
        done, _ = await asyncio.wait(awaited, timeout=timeout)
        for task in started:
            if task not in done:
                task.add_done_callback(lambda _: self._on_late())
        return any(not task.cancelled() and task.result() for task in done)

    def _start(self, partition: int, work: Work) -> asyncio.Task[bool]:
        task = asyncio.get_running_loop().create_task(self._attempt(partition, work))
        self._running[partition] = task
        return task

    async def _attempt(self, partition: int, work: Work) -> bool:
        try:
            await work()
        except BackendError as error:
            self._outage.report("warning", self._problem, error, partition, partition=partition)
            await asyncio.sleep(_RETRY_PAUSE)
            return False
        else:
            self._outage.recovered(partition)
            return True
        finally:
            del self._running[partition]

    async def close(self) -> None:
        tasks = [*self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
