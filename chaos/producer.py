"""Publishers of a run, and the ledger of the events that were acknowledged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

import msgspec

from chaos.calls import Calls
from chaos.deployment import Deployment
from chaos.plan import LANES, Step
from chaos.waiting import until
from headwater import FeatureStore, ServiceEvent
from headwater.backends.redis.client import command
from headwater.backends.redis.environment import open_redis
from headwater.errors import BackendError

_PAUSE_SECONDS = 0.05
_GIVE_UP_SECONDS = 60.0
_MOST_WAITING = 2_000
_BETWEEN_LOOKS_SECONDS = 0.2
_DUPLICATED_SHARE = 0.05
_MOST_DUPLICATES = 5
_EVENTS_PER_MALFORMED = 400

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Step).decode


class Ledger:
    """The file of all events whose publish returned."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stream = file.open("wb")
        self._more = asyncio.Condition()
        self.count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stream.close()

    async def add(self, steps: Sequence[Step]) -> None:
        self._stream.writelines(_encode(step) + b"\n" for step in steps)
        self._stream.flush()
        async with self._more:
            self.count += len(steps)
            self._more.notify_all()

    async def reach(self, count: int) -> None:
        async with self._more:
            await self._more.wait_for(lambda: self.count >= count)

    def steps(self) -> Iterator[Step]:
        """Yield every acknowledged event; events of one entity in the order of acknowledgement."""
        with self._file.open("rb") as lines:
            yield from map(_decode, lines)


class Brake:
    """Pauses the publishers while the backlog is large or a fault is overdue.

    So faults hit workers that keep up, and events are published before and after each of them.
    """

    def __init__(self, store: FeatureStore, is_fault_overdue: Callable[[], bool]) -> None:
        self._store = store
        self._is_fault_overdue = is_fault_overdue
        self._free = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        self._watching = asyncio.create_task(self._watch())

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._watching is not None:
            self._watching.cancel()

    async def _watch(self) -> None:
        """Poll the backlog until cancelled."""
        while True:
            try:
                waiting = max(group.waiting for group in await self._store.admin.groups())
            except BackendError:
                waiting = 0  # the publishers retry until Redis is back
            (self._free.set if waiting < _MOST_WAITING else self._free.clear)()
            await asyncio.sleep(_BETWEEN_LOOKS_SECONDS)

    async def released(self) -> None:
        async def is_time() -> bool:
            return not self._is_fault_overdue()

        await self._free.wait()
        await until(is_time)


class Producer:
    """Publishes batches in order, each until it is acknowledged, and repeats some events."""

    def __init__(
        self,
        store: FeatureStore,
        ledger: Ledger,
        brake: Brake,
        deployment: Deployment,
        random: Random,
        calls: Calls,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._brake = brake
        self._deployment = deployment
        self._random = random
        self._calls = calls
        self.publishing = asyncio.Lock()
        """Held while a batch is published."""
        self.duplicates = 0
        self.taken_twice = 0

    async def run(self, batches: Iterable[list[Step]], rate: float) -> None:
        """Publish the batches at a rate of at most ``rate`` events per second."""
        began, published = time.monotonic(), 0
        for batch in batches:
            await asyncio.sleep(began + published / rate - time.monotonic())
            await self._brake.released()
            async with self.publishing:
                self._deployment.sending(batch)
                await self.publish(batch)
                await self._ledger.add(batch)
                if self._random.random() < _DUPLICATED_SHARE:
                    await self._publish_again(batch[-_MOST_DUPLICATES:])
            published += len(batch)

    async def _publish_again(self, steps: Sequence[Step]) -> None:
        known = await self.publish(steps)
        self.duplicates += len(known)
        self.taken_twice += known.count(False)

    async def publish(self, steps: Sequence[Step]) -> list[bool]:
        """Publish until acknowledged; return for each event whether it was a duplicate."""
        events = [
            ServiceEvent(step.event_type, step.entity_id, step.payload, event_id=step.event_id)
            for step in steps
        ]
        async with asyncio.timeout(_GIVE_UP_SECONDS):
            while True:
                try:
                    with self._calls.timed("publish", self._store.settings.redis.timeout):
                        answers = await self._store.bus.publish_many(events)
                except BackendError:
                    await asyncio.sleep(_PAUSE_SECONDS)
                else:
                    return [answer.duplicate for answer in answers]


class Intruder:
    """Writes malformed entries directly into the streams of partitions."""

    def __init__(self, store: FeatureStore, ledger: Ledger, seed: int) -> None:
        self._store = store
        self._ledger = ledger
        self._random = Random(f"{seed}/malformed")
        self.sent: set[str] = set()
        self.unsure: set[str] = set()
        """Entries with an unknown outcome, because the connection broke."""

    async def run(self, events: int) -> None:
        """Write malformed entries while ``events`` events are published."""
        for number in range(events // _EVENTS_PER_MALFORMED):
            await self._ledger.reach(number * _EVENTS_PER_MALFORMED)
            await self._send(f"malformed-{number}")

    async def _send(self, token: str) -> None:
        fields = self._random.choice(_malformed(token))
        try:
            redis = await open_redis(self._store.settings, self._store.clock)
        except BackendError:
            return
        stream = self._random.choice(redis.keys.parts[:-1]).events
        try:
            await redis.redis.call(command(stream, "XADD", stream, "*", *fields))
        except BackendError:
            self.unsure.add(token)
        else:
            self.sent.add(token)
        finally:
            await redis.close()


def _malformed(token: str) -> list[Sequence[str | bytes]]:
    """Return entries that no publisher of ours writes; each contains the token."""
    event = _encode(ServiceEvent("step", "account-1", {"number": 0}, event_id=token))
    return [
        ("what", token),
        (b"\xff\x00", token.encode() + b"\xfe"),
        ("t", "step", "k", "account-1", "e", f"{{{token}"),
        ("t", "step", "k", "account-1", "e", f'{{"event_type": "{token}"}}'),
        ("t", "step", "k", "account-2", "e", event),
        ("t", "raise", "k", "account-1", "e", event),
        ("e", event, "k", "account-1", "t", "step"),
        ("t", "step", "k", "account-1", "e", event, "x", "1"),
    ]


def rate_of(events: int, seconds: float) -> float:
    """Return the rate of one publisher so that all of them together take ``seconds``."""
    return events / seconds / LANES
