"""Fixtures and helpers shared by the conformance suites."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, Self

import msgspec
import pytest

from headwater.core.clock import to_micros
from headwater.errors import BackendUnavailableError
from headwater.model.contexts import RecordSummary
from headwater.model.dead_letters import DeadLetter
from headwater.model.events import PublishResult
from headwater.model.values import Cell, Cells, EntityKey, ServiceEvent
from headwater.ports import (
    Backends,
    Batch,
    BatchOutcome,
    Change,
    DeadLetterQuery,
    Handled,
    Lease,
    Point,
    RecordQuery,
)

LONG_LEASE = 60.0
"""A lease TTL that does not end during a test."""
BRIEF_LEASE = 2.0
"""A lease TTL whose end a test waits for."""


class Connect(Protocol):
    """Opens a store; further calls open the same store, as another process would."""

    def __call__(
        self, *, group: str = "workers", lease_ttl: float = LONG_LEASE
    ) -> Awaitable[Backends]:
        """Open the store for the workers of a consumer group, with a lease TTL in seconds."""


START = datetime(2026, 1, 1, tzinfo=UTC)
TOUCHES = {"click": {"User"}, "view": {"User", "Page"}}
MANY = 1_000
_PATIENCE_SECONDS = 60.0
_POLL_SECONDS = 0.01


class Opened(Backends, frozen=True):
    """A store that was opened by one process, with the steps that many tests share."""

    @classmethod
    async def by(
        cls, connect: Connect, group: str = "workers", lease_ttl: float = LONG_LEASE
    ) -> Self:
        return cls(**msgspec.structs.asdict(await connect(group=group, lease_ttl=lease_ttl)))

    async def publish(self, events: Sequence[ServiceEvent]) -> list[PublishResult]:
        """Publish events without deduplication."""
        return await self.bus.publish(events, dedup_window=None)

    async def hold(
        self, worker: str = "w1", partitions: Collection[int] | None = None
    ) -> list[Lease]:
        """Register a worker and claim partitions, by default all of them."""
        await self.leases.register(worker)
        await self.leases.heartbeat(worker, [])
        all_partitions = range(self.bus.partitions + 1)
        return await self.leases.claim(worker, all_partitions if partitions is None else partitions)

    async def claim_when_free(
        self, worker: str, partitions: Collection[int], declared: Collection[str] = ()
    ) -> list[Lease]:
        """Register a worker and claim partitions as soon as the leases of their owner have expired.

        A server that has only a part of a brief lease to answer may be late, and is asked again.
        """
        claimed: list[Lease] = []
        is_registered = False

        async def all_claimed() -> bool:
            nonlocal is_registered
            with suppress(BackendUnavailableError):
                if not is_registered:
                    await self.leases.register(worker, declared)
                    is_registered = True
                await self.leases.heartbeat(worker, claimed)
                rest = set(partitions) - {lease.partition for lease in claimed}
                claimed.extend(await self.leases.claim(worker, rest))
            return is_registered and len(claimed) == len(partitions)

        await until(all_claimed)
        return claimed

    async def read(self, leases: Sequence[Lease], limit: int = MANY) -> list[Batch]:
        """Read the next batches of these partitions."""
        return await self.bus.read(leases, limit, TOUCHES)

    async def only_batch(self, leases: Sequence[Lease]) -> Batch:
        """Wait for the next batch, as a worker does, and assert that it is the only one."""
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while not (batches := await self.read(leases)):
                await self.bus.wait(leases[0].owner, _POLL_SECONDS)
        (batch,) = batches
        return batch

    async def take_clicks(self, count: int) -> tuple[list[Lease], Batch]:
        """Publish events of one entity, claim all partitions and read the events as a batch."""
        await self.publish(clicks(count))
        leases = await self.hold()
        return leases, await self.only_batch(leases)

    async def value_online(self, feature: str = "clicks", entity_id: str = "u1") -> int:
        """Return a current value; raise KeyError if there is none."""
        (cells,) = await self.online.get("User", [entity_id])
        value: int = msgspec.json.decode(cells[feature].value)
        return value

    async def value_at(
        self,
        moment: datetime,
        *,
        feature: str = "clicks",
        entity_id: str = "u1",
        known: bool = False,
    ) -> int | None:
        """Return a value from history."""
        [[past]] = await self.offline.as_of([feature], [Point(entity_id, moment)], known=known)
        return None if past is None else int(past.value)

    async def letters(self, **query: Any) -> list[DeadLetter]:
        """Return the dead letters that match a query."""
        return await self.dead_letters.letters(DeadLetterQuery(**query))

    async def summaries(self, **query: Any) -> list[RecordSummary]:
        """Return the summaries of the records that match a query."""
        return await self.records.records(RecordQuery(**query))

    async def history_rows(self) -> int:
        """Return the number of values in history."""
        rows = await self.offline.query("SELECT count(*) FROM feature_history", {})
        count: int = rows.rows[0][0]
        return count


class Suite:
    """The fixtures of a suite; a backend's tests override ``connect``.

    The store is initially empty, uses the system clock, has at least two partitions, and is closed
    and removed after the test.
    """

    @pytest.fixture
    def connect(self) -> Connect:
        raise NotImplementedError(f"{type(self).__name__} must override the fixture 'connect'")

    @pytest.fixture
    async def store(self, connect: Connect) -> Opened:
        return await Opened.by(connect)

    @pytest.fixture
    async def other(self, connect: Connect) -> Opened:
        """Open the same store, as another process would."""
        return await Opened.by(connect)


def after(seconds: float) -> datetime:
    """Return the time this many seconds after START."""
    return START + timedelta(seconds=seconds)


def click(entity_id: str = "u1", number: int = 0, *, event_id: str | None = None) -> ServiceEvent:
    """Return an event that is identified by a number."""
    event = ServiceEvent("click", entity_id, {"number": number}, START)
    return event if event_id is None else msgspec.structs.replace(event, event_id=event_id)


def clicks(count: int, entity_id: str = "u1") -> list[ServiceEvent]:
    """Return numbered events of one entity."""
    return [click(entity_id, number) for number in range(count)]


def change(
    value: int = 1,
    *,
    feature: str = "clicks",
    entity: str = "User",
    entity_id: str = "u1",
    as_of: datetime = START,
    written_at: datetime | None = None,
    expires_at: datetime | None = None,
    online: bool = True,
    authoritative: bool = True,
) -> Change:
    """Return a change of a feature's value."""
    cell = Cell(
        msgspec.Raw(msgspec.json.encode(value)),
        to_micros(as_of),
        to_micros(written_at or as_of),
        None if expires_at is None else to_micros(expires_at),
    )
    return Change(feature, entity, entity_id, "int", cell, "test", online, authoritative)


def numbers(batch: Batch) -> list[int]:
    """Return the numbers of a batch's events in order."""
    return [delivery.event.payload["number"] for delivery in batch.deliveries]


def outcome(
    batch: Batch,
    changes: Sequence[Change] = (),
    *,
    dead: Sequence[DeadLetter] = (),
    follow_ups: Sequence[ServiceEvent] = (),
) -> BatchOutcome:
    """Return an outcome of the batch with these changes."""
    states: dict[EntityKey, Cells] = {}
    for each in changes:
        if each.online:
            cells = states.get(each.key) or batch.states[each.key].cells
            states[each.key] = {**cells, each.feature: each.cell}
    return BatchOutcome(
        batch=batch,
        versions={key: state.version for key, state in batch.states.items()},
        states=states,
        changes=changes,
        handled=[Handled(delivery.event, 0.0, (), ()) for delivery in batch.deliveries],
        dead=dead,
        follow_ups=follow_ups,
    )


def dead_letter(batch: Batch, feature: str = "clicks", *, at: datetime = START) -> DeadLetter:
    """Return a dead letter for a batch's first event, as a worker creates it."""
    first = batch.deliveries[0]
    return DeadLetter(
        id="",
        event=first.event,
        feature=feature,
        error="ValueError: no",
        traceback="Traceback: …",
        attempts=4,
        partition=batch.lease.partition,
        position=first.position,
        first_failed_at=at,
        dead_at=at + timedelta(seconds=3),
    )


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a condition, with a timeout for slow machines."""
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while not await condition():  # noqa: ASYNC110 - another process or the clock makes it true
            await asyncio.sleep(_POLL_SECONDS)
