"""Events on their way: the log they are in, the workers that read it, and what failed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from headwater.core.values import Cells, EntityKey, ServiceEvent
from headwater.ports.values import Change, EntityState


class PublishResult(msgspec.Struct, frozen=True, gc=False):
    """The answer to one published event."""

    event_id: str
    duplicate: bool


class Lease(msgspec.Struct, frozen=True):
    """A worker's right to one partition; void as soon as another epoch of it exists.

    ``suspect`` says that the last owner died without an outcome for the next events: one of them
    may be what killed it, so they are run alone and counted.
    """

    partition: int
    owner: str
    epoch: int
    suspect: bool = False


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """One event at its position in a partition; ``only`` names the single feature of a redrive.

    What was found in the log but is no event comes as one of type ``MALFORMED``.
    """

    position: str
    event: ServiceEvent
    only: str | None = None


class Batch(msgspec.Struct, frozen=True):
    """The next events of one partition and the state of every entity they touch."""

    lease: Lease
    deliveries: Sequence[Delivery]
    states: Mapping[EntityKey, EntityState]


class DeadLetter(msgspec.Struct, frozen=True, gc=False):
    """An event that a feature could not handle, with all it takes to see why and run it again."""

    id: str
    event: ServiceEvent
    feature: str
    error: str
    traceback: str
    attempts: int
    partition: int
    position: str
    first_failed_at: datetime
    dead_at: datetime


class Failure(msgspec.Struct, frozen=True, gc=False):
    """A feature that failed for an event, after how many attempts and with what."""

    feature: str
    error: str
    traceback: str
    attempts: int
    first_failed_at: datetime


class Handled(msgspec.Struct, frozen=True, gc=False):
    """What became of one event: which features it updated, which failed, and how long it took."""

    event: ServiceEvent
    duration: float
    updated: Sequence[str]
    failures: Sequence[Failure]
    retries: int = 0
    triggered: bool = False
    skipped: bool = False


class Outcome(msgspec.Struct, frozen=True):
    """Everything a batch did, committed all or nothing."""

    batch: Batch
    versions: Mapping[EntityKey, int]
    states: Mapping[EntityKey, Cells]
    changes: Sequence[Change]
    handled: Sequence[Handled]
    dead: Sequence[DeadLetter] = ()
    follow_ups: Sequence[ServiceEvent] = ()


class Tick(msgspec.Struct, frozen=True):
    """One due run of a scheduled feature, as the event or events that will make it."""

    feature: str
    due: datetime
    interval: timedelta
    event: ServiceEvent
    everywhere: bool


class ConsumerLag(msgspec.Struct, frozen=True):
    """What waits in one partition: who has it, how many events, and since when the oldest."""

    partition: int
    owner: str | None
    waiting: int
    oldest_at: datetime | None


class Bus(Protocol):
    """The durable log of events, in partitions, read by workers that hold leases.

    An event whose publish returned survives the death of every process. Events of one entity are
    in one partition, in the order their publishes returned. An event id published again for
    its entity within the dedup window is accepted once. A batch that was not committed is read
    again, by this worker or by the next owner; one that was committed is never read again.
    """

    partitions: int

    async def publish(
        self, events: Sequence[ServiceEvent], *, dedup_window: timedelta | None
    ) -> list[PublishResult]:
        """Appends events, all or none, and returns when they are durable."""
        ...

    async def publish_ticks(self, ticks: Sequence[Tick]) -> list[datetime | None]:
        """Publishes each tick unless its due time or a later one was; gives the due time before.

        The due time given back for a tick that was not new is its own.
        """
        ...

    async def read(
        self, leases: Sequence[Lease], limit: int, touches: Mapping[str, Collection[str]]
    ) -> list[Batch]:
        """Reads the next uncommitted events of each partition, up to a limit over all of them.

        ``touches`` says which entities an event type concerns, so that their states come along.
        A partition in which the last read found nothing may be left out until ``wait`` returns.
        """
        ...

    async def attempt(self, lease: Lease, position: str) -> int:
        """Counts a run of a suspect event durably before it runs; gives the count.

        It is 0 when the owners that were taken for dead have shown since that they live.
        """
        ...

    async def commit(self, outcome: Outcome) -> None:
        """Makes values, history, dead letters, follow-ups and the batch's end durable as one.

        Raises LeaseLostError or VersionConflictError, and then nothing of the outcome exists.
        """
        ...

    async def wait(self, worker: str, seconds: float) -> bool:
        """Returns when there may be something new since a read found nothing, or after so long.

        Says whether workers may have come or gone, so that partitions may be free.
        """
        ...

    async def lag(self) -> list[ConsumerLag]:
        """How far the workers of the group are behind in each partition."""
        ...

    async def backlog(self) -> int:
        """Counts the events that wait to be committed."""
        ...


class Leases(Protocol):
    """Which workers are alive and which partitions each of them holds.

    A partition has at most one valid lease. A dead worker's partitions can be claimed, at the
    latest when the lease's time to live is over.
    """

    async def register(self, worker: str) -> None: ...

    async def heartbeat(self, worker: str, leases: Sequence[Lease]) -> list[str]:
        """Shows that the worker is well, prolongs its leases, and lists all workers that are."""
        ...

    async def claim(self, worker: str, partitions: Collection[int]) -> list[Lease]:
        """Takes those of the partitions that no other living worker holds."""
        ...

    async def release(self, leases: Sequence[Lease]) -> None: ...

    async def retire(self, worker: str) -> None:
        """Lists the worker no longer, so that others want its partitions; it keeps them so far."""
        ...

    async def deregister(self, worker: str) -> None: ...


class DeadLetters(Protocol):
    """The events that could not be handled, kept until someone decides about them."""

    async def letters(
        self,
        *,
        ids: Collection[str] | None = None,
        feature: str | None = None,
        event_type: str | None = None,
        entity_id: str | None = None,
        since: datetime | None = None,
        before: datetime | None = None,
        limit: int = 100,
    ) -> list[DeadLetter]:
        """Lists dead letters, oldest first: those that fit everything that is given.

        The times are those at which they were given up: ``since`` included, ``before`` not. An id
        that no letter has, or that could be none, is left out.
        """
        ...

    async def count(self) -> int:
        """Counts the dead letters that wait for a decision."""
        ...

    async def redrive(self, ids: Sequence[str]) -> None:
        """Publishes each again for its failed feature alone, and removes it, as one."""
        ...

    async def discard(self, ids: Sequence[str]) -> None: ...
