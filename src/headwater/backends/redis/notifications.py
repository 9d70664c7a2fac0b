"""Notifications of new events: which partitions are known to be empty, and which no longer are.

A read that finds nothing marks its partition idle in the same script. The next publish to the
partition removes the mark and sends a message, also in one script. So an idle worker sends no
requests, a busy one receives no messages, and no event is missed. If the connection is lost,
messages may be lost, so all partitions are read again; this also happens periodically.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

from headwater.backends.redis.client import Redis
from headwater.backends.redis.subscription import Subscription
from headwater.errors import ClosedError

Token = tuple[int, int]
"""Identifies the last message about a partition."""


class _WaitingWorker:
    def __init__(self) -> None:
        self.awake = asyncio.Event()
        self.workers_changed = False

    def wake(self, *, workers_changed: bool = False) -> None:
        self.workers_changed |= workers_changed
        self.awake.set()


class Notifications:
    """One subscription, shared by all workers of this process."""

    def __init__(self, redis: Redis, channel: str) -> None:
        self._workers: dict[str, _WaitingWorker] = {}
        self._idle: set[int] = set()
        self._last_reset = time.monotonic()
        self._messages: Counter[int] = Counter()
        self._subscriptions = 0
        self._subscription = Subscription(redis, channel, self._on_message, self._on_subscribed)
        self.close = self._subscription.close

    def join(self, worker: str) -> None:
        """Start to listen for a worker."""
        self._workers[worker] = _WaitingWorker()
        self._subscription.start()

    def leave(self, worker: str) -> None:
        self._workers.pop(worker, None)

    async def wait(self, worker: str, seconds: float) -> bool:
        """Wait for a message, at most so many seconds; return True if workers joined or left."""
        try:
            waiting = self._workers[worker]
        except KeyError:
            raise ClosedError(f"worker {worker} is not registered") from None
        try:
            async with asyncio.timeout(seconds):
                await waiting.awake.wait()
        except TimeoutError:
            self._reset()
        # Frequent messages about other partitions must not postpone the periodic reset.
        if time.monotonic() - self._last_reset >= seconds:
            self._reset()
        waiting.awake.clear()
        changed, waiting.workers_changed = waiting.workers_changed, False
        return changed

    def token(self, partition: int) -> Token:
        """Return the last message about a partition; call this before reading it."""
        return self._subscriptions, self._messages[partition]

    def mark_empty(self, partition: int, token: Token) -> None:
        """Mark a partition empty after a read, unless a message arrived since the token."""
        if self.token(partition) == token:
            self._idle.add(partition)

    def is_empty(self, partition: int) -> bool:
        return partition in self._idle

    def mark_unknown(self, partition: int) -> None:
        """Discard the knowledge that a partition is empty."""
        self._idle.discard(partition)
        self._messages[partition] += 1

    def _reset(self) -> None:
        self._last_reset = time.monotonic()
        self._idle.clear()

    def _on_subscribed(self) -> None:
        # Messages before the subscription are unknown.
        self._subscriptions += 1
        self._reset()
        self.wake_all(workers_changed=True)

    def _on_message(self, message: Any) -> None:
        *_, data = message
        is_event = data.isdigit()
        if is_event:
            self.mark_unknown(int(data))
        self.wake_all(workers_changed=not is_event)

    def wake_all(self, *, workers_changed: bool = False) -> None:
        """Wake all workers of this process."""
        for waiting in self._workers.values():
            waiting.wake(workers_changed=workers_changed)
