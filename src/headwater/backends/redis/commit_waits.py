"""Waiting for the commits of a consumer group, by messages of the scripts that commit.

A call that waits leaves a mark in the group; the next commit removes it and sends a message. The
calls look at the position again when the subscription begins, so no commit is missed, and at
intervals while it fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from headwater.backends.redis.client import Call, Redis, script_call
from headwater.backends.redis.keys import Keys
from headwater.backends.redis.subscription import Subscription
from headwater.core.partitioning import partition_of
from headwater.ports import Awaited

_Found = list[frozenset[str] | None]


class CommitWaits:
    """The calls of this process that wait, by the key of the group in a partition."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis = redis
        self._keys = keys
        self._waiting: dict[str, set[asyncio.Event]] = {}
        look = self._look_again
        self._subscription = Subscription(redis, keys.commits, self._on_message, look, look)
        self.close = self._subscription.close

    async def handled(
        self, group: str, awaited: Sequence[Awaited], *, wait: bool = False
    ) -> list[frozenset[str] | None]:
        """Return what `Bus.handled` promises."""
        keys = self._keys if group == self._keys.group else self._keys.named(group)
        channel = keys.commits if wait else ""
        found: _Found = [None] * len(awaited)
        positions = [event.position for event in awaited]
        rest: dict[int, list[int]] = {}
        for index, event in enumerate(awaited):
            rest.setdefault(partition_of(event.entity_id, keys.partitions), []).append(index)

        def call(partition: int, indexes: Sequence[int]) -> Call:
            part = keys.parts[partition]
            names = [part.group, part.events, part.unhandled(group)]
            events = [(*awaited[index], positions[index]) for index in indexes]
            return script_call("handled", names, channel, *(text for e in events for text in e))

        async def look() -> _Found:
            """Ask for the events that were not committed before."""
            answers = await self._redis.calls([call(*item) for item in rest.items()])
            for (partition, indexes), answer in zip([*rest.items()], answers, strict=True):
                for index, (position, failed) in zip(indexes, answer, strict=True):
                    positions[index] = position.decode()
                    if failed is not None:
                        found[index] = frozenset(series.decode() for series in failed)
                if all(found[index] is not None for index in indexes):
                    del rest[partition]
            return found

        if not wait:
            return await look()
        with self.listening([keys.parts[partition].group for partition in rest]) as woken:
            while None in await look():
                await woken.wait()
                woken.clear()
        return found

    @contextmanager
    def listening(self, groups: Collection[str]) -> Iterator[asyncio.Event]:
        """Yield an event that is set when one of these groups may have committed.

        Feeds announce by their keys, in the same way, that they have appended what is awaited.
        """
        woken = asyncio.Event()
        for group in groups:
            self._waiting.setdefault(group, set()).add(woken)
        self._subscription.start()
        try:
            yield woken
        finally:
            for group in groups:
                self._waiting[group].discard(woken)
                if not self._waiting[group]:
                    del self._waiting[group]

    def _on_message(self, message: Any) -> None:
        *_, group = message
        for woken in self._waiting.get(group.decode(), ()):
            woken.set()

    def _look_again(self) -> None:
        for waiting in self._waiting.values():
            for woken in waiting:
                woken.set()
