"""Who waits for what: partitions known to be empty, and the message that one is no longer so.

A read that finds nothing marks its partition idle in the same step; the next publish to it removes
the mark and sends a message, in one step as well. So an idle worker asks nothing, a busy one is
told nothing, and no event is overlooked. Should a message be lost with its connection, everything
is looked at again; and so it is now and then, whatever was heard.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import suppress
from typing import Any

from headwater.backends.redis.client import Redis
from headwater.core.logging import Outage
from headwater.errors import BackendError, ClosedError

_PAUSE = 0.5

Heard = tuple[int, int]


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
        self._looked_at = time.monotonic()
        self._heard: Counter[int] = Counter()
        self._subscriptions = 0
        self._listening: asyncio.Task[None] | None = None
        self._outage = Outage("messages")

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
            self._look_at_all()
        # Others may keep waking us, so that it is never quiet for as long.
        if time.monotonic() - self._looked_at >= seconds:
            self._look_at_all()
        sleeper.awake.clear()
        changed, sleeper.workers_changed = sleeper.workers_changed, False
        return changed

    def heard(self, partition: int) -> Heard:
        """What has been heard of a partition so far; to be asked before it is read."""
        return self._subscriptions, self._heard[partition]

    def found_empty(self, partition: int, heard: Heard) -> None:
        """Remembers that a read found nothing, unless a message may have come since it was sent."""
        if self.heard(partition) == heard:
            self._idle.add(partition)

    def is_empty(self, partition: int) -> bool:
        return partition in self._idle

    def look_again(self, partition: int) -> None:
        """Forgets what was known of a partition."""
        self._idle.discard(partition)
        self._heard[partition] += 1

    def _look_at_all(self) -> None:
        self._looked_at = time.monotonic()
        self._idle.clear()

    async def _listen(self) -> None:
        while True:
            try:
                await self._hear()
            except BackendError as error:
                self._outage.tell("warning", "not woken by Redis for now", error, self._channel)
            await asyncio.sleep(_PAUSE)

    async def _hear(self) -> None:
        """Takes messages until the connection is lost; asked nothing, it might be lost unseen."""
        connection = await self._redis.subscribe(self._channel, self._on_message)
        try:
            # Whatever was said before is unknown.
            self._outage.over(self._channel)
            self._subscriptions += 1
            self._look_at_all()
            self.wake_all(workers_changed=True)
            while True:
                await asyncio.wait([connection.closed], timeout=self._redis.timeout)
                await connection.calls([["PING"]])
        finally:
            connection.close()

    def _on_message(self, message: Any) -> None:
        *_, data = message
        of_events = data.isdigit()
        if of_events:
            self.look_again(int(data))
        self.wake_all(workers_changed=not of_events)

    def wake_all(self, *, workers_changed: bool = False) -> None:
        """Lets all workers of this process look for themselves."""
        for sleeper in self._sleepers.values():
            sleeper.wake(workers_changed=workers_changed)

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            with suppress(asyncio.CancelledError):
                await self._listening
