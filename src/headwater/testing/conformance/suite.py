"""What the suites share: their fixtures, and the small things their stories are made of."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from headwater.core.clock import to_micros
from headwater.core.values import Cell, Cells, EntityKey, ServiceEvent
from headwater.ports import (
    Backends,
    Batch,
    Change,
    DeadLetter,
    Handled,
    Lease,
    Outcome,
    Point,
    PublishResult,
)

Connect = Callable[[], Awaitable[Backends]]
"""Opens one store; every further call opens the same store, as another process would."""

START = datetime(2026, 1, 1, tzinfo=UTC)
TOUCHES = {"click": {"User"}, "view": {"User", "Page"}}
MANY = 1_000
_PATIENCE_SECONDS = 10.0
_POLL_SECONDS = 0.01


class Suite:
    """The fixtures of a suite; a backend's tests override ``connect``.

    The store is empty at first, works by the machine's clock, has at least two partitions and
    leases that live for half a second, and is closed and removed after the test.
    """

    @pytest.fixture
    def connect(self) -> Connect:
        raise NotImplementedError(f"{type(self).__name__} must override the fixture 'connect'")

    @pytest.fixture
    async def backends(self, connect: Connect) -> Backends:
        return await connect()


def after(seconds: float) -> datetime:
    """So many seconds after the start of the story."""
    return START + timedelta(seconds=seconds)


def click(entity_id: str = "u1", number: int = 0, *, event_id: str | None = None) -> ServiceEvent:
    """An event with a number by which to know it."""
    event = ServiceEvent("click", entity_id, {"number": number}, START)
    return event if event_id is None else msgspec.structs.replace(event, event_id=event_id)


def clicks(count: int, entity_id: str = "u1") -> list[ServiceEvent]:
    """Events of one entity, numbered in order."""
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
    """A value that a feature took on."""
    cell = Cell(
        msgspec.Raw(msgspec.json.encode(value)),
        to_micros(as_of),
        to_micros(written_at or as_of),
        None if expires_at is None else to_micros(expires_at),
    )
    return Change(feature, entity, entity_id, "int", cell, "test", online, authoritative)


async def publish(backends: Backends, events: Sequence[ServiceEvent]) -> list[PublishResult]:
    """Publishes events whose ids nobody needs to recognise later."""
    return await backends.bus.publish(events, dedup_window=None)


async def hold(
    backends: Backends, worker: str = "w1", partitions: Collection[int] | None = None
) -> list[Lease]:
    """Lets a worker join and claim partitions, all of them unless told otherwise."""
    await backends.leases.register(worker)
    await backends.leases.heartbeat(worker, [])
    every = range(backends.bus.partitions + 1)
    return await backends.leases.claim(worker, every if partitions is None else partitions)


async def claim_when_free(
    backends: Backends, worker: str, partitions: Collection[int]
) -> list[Lease]:
    """Claims partitions as soon as their holder counts as dead."""
    claimed: list[Lease] = []

    async def all_claimed() -> bool:
        await backends.leases.heartbeat(worker, claimed)
        rest = set(partitions) - {lease.partition for lease in claimed}
        claimed.extend(await backends.leases.claim(worker, rest))
        return len(claimed) == len(partitions)

    await until(all_claimed)
    return claimed


async def read(backends: Backends, leases: Sequence[Lease], limit: int = MANY) -> list[Batch]:
    """The next batches of these partitions."""
    return await backends.bus.read(leases, limit, TOUCHES)


async def only_batch(backends: Backends, leases: Sequence[Lease]) -> Batch:
    """The next batch, when there is exactly one; as a worker does, it waits for news of it."""
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while not (batches := await read(backends, leases)):
            await backends.bus.wait(leases[0].owner, _POLL_SECONDS)
    (batch,) = batches
    return batch


def numbers(batch: Batch) -> list[int]:
    """The numbers of a batch's events, in its order."""
    return [delivery.event.payload["number"] for delivery in batch.deliveries]


def outcome(
    batch: Batch,
    changes: Sequence[Change] = (),
    *,
    dead: Sequence[DeadLetter] = (),
    follow_ups: Sequence[ServiceEvent] = (),
) -> Outcome:
    """A batch's outcome with the values that its events are to have led to."""
    states: dict[EntityKey, Cells] = {}
    for each in changes:
        if each.online:
            cells = states.get(each.key) or batch.states[each.key].cells
            states[each.key] = {**cells, each.feature: each.cell}
    return Outcome(
        batch=batch,
        versions={key: state.version for key, state in batch.states.items()},
        states=states,
        changes=changes,
        handled=[Handled(delivery.event, 0.0, (), ()) for delivery in batch.deliveries],
        dead=dead,
        follow_ups=follow_ups,
    )


def dead_letter(batch: Batch, feature: str = "clicks", *, at: datetime = START) -> DeadLetter:
    """A letter for a batch's first event, as a worker hands it in."""
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


async def value_online(backends: Backends, feature: str = "clicks", entity_id: str = "u1") -> int:
    """A value as a reader gets it; a KeyError where there is none."""
    (cells,) = await backends.online.get("User", [entity_id])
    value: int = msgspec.json.decode(cells[feature].value)
    return value


async def value_at(
    backends: Backends,
    moment: datetime,
    *,
    feature: str = "clicks",
    entity_id: str = "u1",
    known: bool = False,
) -> int | None:
    """A value as history has it."""
    [[past]] = await backends.offline.as_of([feature], [Point(entity_id, moment)], known=known)
    return None if past is None else int(past.value)


async def history_rows(backends: Backends) -> int:
    """How many values history holds."""
    rows = await backends.offline.query("SELECT count(*) FROM feature_history", {})
    count: int = rows.rows[0][0]
    return count


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Waits for a condition, as long as a slow machine may need."""
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while not await condition():  # noqa: ASYNC110 - it comes true in another process, or in time
            await asyncio.sleep(_POLL_SECONDS)
