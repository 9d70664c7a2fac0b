"""Who waits for what: partitions known to be empty, and the message that one is no longer so.

A read that finds nothing marks its partition idle in the same step; the next publish to it removes
the mark and sends a message, in one step as well. So an idle worker asks nothing, a busy one is
told nothing, and no event is overlooked. Should a message be lost with its connection, everything
is looked at again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any

from headwater.backends.redis.client import Redis
from headwater.errors import BackendError, ClosedError
from headwater.logs import log

_PAUSE = 0.5


class _Sleeper:
    def __init__(self) -> None:
        self.awake = asyncio.Event()
        self.workers_changed = False

    def wake(self, *, workers_changed: bool = False) -> None:
        self.workers_changed |= workers_changed
        self.awake.set()


class Wakes:
    """One subscription for all workers of this process."""

    def __init__(self, redis: Redis, channel: str) -> None:
        self._redis = redis
        self._channel = channel
        self._sleepers: dict[str, _Sleeper] = {}
        self._idle: set[int] = set()
        self._heard: Counter[int] = Counter()
        self._listening: asyncio.Task[None] | None = None

    def join(self, worker: str) -> None:
        """Begins to listen for a worker."""
        self._sleepers[worker] = _Sleeper()
        if self._listening is None:
            self._listening = asyncio.get_running_loop().create_task(self._listen())

    def leave(self, worker: str) -> None:
        self._sleepers.pop(worker, None)

    async def wait(self, worker: str, seconds: float) -> bool:
        """Returns when woken, at the latest after so long; says whether workers came or went."""
        try:
            sleeper = self._sleepers[worker]
        except KeyError:
            raise ClosedError(f"worker {worker} has not joined, or has left") from None
        try:
            async with asyncio.timeout(seconds):
                await sleeper.awake.wait()
        except TimeoutError:
            self._idle.clear()
        sleeper.awake.clear()
        changed, sleeper.workers_changed = sleeper.workers_changed, False
        return changed

    def heard(self, partition: int) -> int:
        """How many messages for a partition have come; to be asked before it is read."""
        return self._heard[partition]

    def found_empty(self, partition: int, heard: int) -> None:
        """Remembers that a read found nothing, unless a message came since it was sent."""
        if self._heard[partition] == heard:
            self._idle.add(partition)

    def is_empty(self, partition: int) -> bool:
        return partition in self._idle

    def look_again(self, partition: int) -> None:
        """Forgets what was known of a partition."""
        self._idle.discard(partition)
        self._heard[partition] += 1

    async def _listen(self) -> None:
        while True:
            try:
                wire = await self._redis.subscribe(self._channel, self._on_push)
            except BackendError as error:
                log.warning("not woken by Redis for now", error=str(error))
                await asyncio.sleep(_PAUSE)
                continue
            try:
                await asyncio.shield(wire.closed)
            finally:
                wire.close()

    def _on_push(self, reply: Any) -> None:
        kind, _, data = reply
        if kind == b"message" and data != b"workers":
            self.look_again(int(data))
            self._wake_all()
            return
        if kind == b"subscribe":
            # Whatever was said before is unknown.
            for partition in list(self._idle):
                self.look_again(partition)
        self._wake_all(workers_changed=True)

    def _wake_all(self, *, workers_changed: bool = False) -> None:
        for sleeper in self._sleepers.values():
            sleeper.wake(workers_changed=workers_changed)

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            with suppress(asyncio.CancelledError):
                await self._listening
