"""Work done beside the reading, so that a silent server keeps only its own partitions waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from headwater.core.logging import Outage
from headwater.errors import BackendError

_PATIENCE = 0.2
_LONGER_PATIENCE = 1.0
_PAUSE = 1.0

Work = Callable[[], Awaitable[None]]


class Errands:
    """At most one piece of work for each partition; what fails may be begun again after a pause."""

    def __init__(self, part: str, problem: str, on_late: Callable[[], None]) -> None:
        self._outage = Outage(part)
        self._problem = problem
        self._on_late = on_late
        self._under_way: dict[int, asyncio.Task[bool]] = {}

    async def run(self, works: Mapping[int, Work], *, insist: bool = False) -> bool:
        """Begins what is not under way and says whether any of it is done, now or soon.

        Who has nothing else to do insists, and waits longer, for what was under way as well.
        """
        begun = [self._begin(*each) for each in works.items() if each[0] not in self._under_way]
        awaited = [self._under_way[partition] for partition in works] if insist else begun
        if not awaited:
            return False
        patience = _LONGER_PATIENCE if insist else _PATIENCE
        done, _ = await asyncio.wait(awaited, timeout=patience)
        for task in begun:
            if task not in done:
                task.add_done_callback(lambda _: self._on_late())
        return any(not task.cancelled() and task.result() for task in done)

    def _begin(self, partition: int, work: Work) -> asyncio.Task[bool]:
        task = asyncio.get_running_loop().create_task(self._do(partition, work))
        self._under_way[partition] = task
        return task

    async def _do(self, partition: int, work: Work) -> bool:
        try:
            await work()
        except BackendError as error:
            self._outage.tell("warning", self._problem, error, partition, partition=partition)
            await asyncio.sleep(_PAUSE)
            return False
        else:
            self._outage.over(partition)
            return True
        finally:
            del self._under_way[partition]

    async def close(self) -> None:
        tasks = [*self._under_way.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
