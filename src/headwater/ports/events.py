"""Events: the log, the leases of the workers that read it, and the dead letters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import NamedTuple, Protocol

import msgspec

from headwater.core.codec import encode_custom
from headwater.core.schedules import Schedule
from headwater.model.admin import ConsumerGroup, ConsumerLag
from headwater.model.dead_letters import DeadLetter
from headwater.model.events import PublishResult
from headwater.model.values import Cells, EntityKey, ServiceEvent, is_time_assigned
from headwater.ports.values import Change, EntityState
from headwater.ports.vectors import DocumentWrite

_DIGEST_BYTES = 8
_Content = tuple[str, datetime | None, str]
"""Type, timestamp (None if the sender gave none) and digest of the payload."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Content).decode
# The order of the keys is not content: a client may write them in another order when it repeats.
_encode_sorted = msgspec.json.Encoder(order="deterministic", enc_hook=encode_custom).encode

Subjects = Callable[[ServiceEvent], Iterable[EntityKey]]
"""Returns the entities that an event is about, and those that it names as their owners."""


def no_subjects(_event: ServiceEvent) -> Iterable[EntityKey]:
    """Return no entity, for events that are about none."""
    return ()


def event_content(event: ServiceEvent) -> bytes:
    """Return type, timestamp and digest of the payload; equal for events of equal content.

    It is kept with an event's id, to tell a repetition from a conflict.
    """
    digest = blake2b(_encode_sorted(event.payload), digest_size=_DIGEST_BYTES).hexdigest()
    at = None if is_time_assigned(event) else event.timestamp
    return _encode((event.event_type, at, digest))


def publish_result(event: ServiceEvent, accepted: bytes | None) -> PublishResult:
    """Return an event's result, given the content that its id was accepted with; None if new."""
    if accepted is None:
        return PublishResult(event.event_id, duplicate=False)
    old_type, old_time, old_digest = _decode(accepted)
    new_type, new_time, new_digest = _decode(event_content(event))
    changes: list[str] = []
    if old_type != new_type:
        changes.append(f"event_type was {old_type!r}, is {new_type!r}")
    if old_time is not None and new_time is not None and old_time != new_time:
        changes.append(f"timestamp was {old_time.isoformat()}, is {new_time.isoformat()}")
    if old_digest != new_digest:
        changes.append("payload differs")
    return PublishResult(event.event_id, duplicate=not changes, conflict="; ".join(changes))


class Lease(msgspec.Struct, frozen=True):
    """A worker's exclusive right to a partition; void as soon as a later epoch exists.

    ``suspect`` is True if the last owner died without an outcome for the next events. One of them
    may have killed it, so each is run alone and its attempts are counted.
    """

    partition: int
    owner: str
    epoch: int
    suspect: bool = False


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """One event at its position in a partition.

    ``only`` names the feature of a redrive, and ``group`` the consumer group in which it failed. A
    ``group`` alone is the one that had not handled an event before Redis was restored.

    An entry that cannot be decoded is delivered as an event of type ``MALFORMED``.
    """

    position: str
    event: ServiceEvent
    only: str | None = None
    group: str = ""


class Awaited(NamedTuple):
    """An event that a publisher waits for; without a position, all that its partition has now."""

    entity_id: str
    position: str = ""


def position_order(position: str) -> tuple[int, ...]:
    """Return a key by which positions of one partition are in order."""
    return tuple(map(int, position.split("-")))


class Batch(msgspec.Struct, frozen=True):
    """The next events of one partition and the state of every entity they touch."""

    lease: Lease
    deliveries: Sequence[Delivery]
    states: Mapping[EntityKey, EntityState]


class DeadLetterQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Filters of dead letters; ``since`` (inclusive) and ``before`` apply to ``dead_at``.

    ``error`` is an ``error_pattern``, and ``after`` the last letter of the page before. Unknown and
    invalid ids are ignored.
    """

    ids: Collection[str] | None = None
    feature: str | None = None
    event_type: str | None = None
    entity_id: str | None = None
    since: datetime | None = None
    before: datetime | None = None
    error: str | None = None
    after: str | None = None
    newest_first: bool = False
    limit: int = 100


class LetterSummary(msgspec.Struct, frozen=True, gc=False):
    """A dead letter without its event and its traceback."""

    id: str
    feature: str
    event_type: str
    error: str
    attempts: int
    first_failed_at: datetime
    dead_at: datetime


class Failure(msgspec.Struct, frozen=True, gc=False):
    """A feature that failed for an event, with the last error and the number of attempts."""

    feature: str
    error: str
    traceback: str
    attempts: int
    first_failed_at: datetime


class Handled(msgspec.Struct, frozen=True, gc=False):
    """The result of handling one event: updated features, failures and duration."""

    event: ServiceEvent
    duration: float
    updated: Sequence[str]
    failures: Sequence[Failure]
    retries: int = 0
    triggered: bool = False
    skipped: bool = False


class BatchOutcome(msgspec.Struct, frozen=True):
    """All effects of a batch, committed atomically."""

    batch: Batch
    versions: Mapping[EntityKey, int]
    states: Mapping[EntityKey, Cells]
    changes: Sequence[Change]
    handled: Sequence[Handled]
    dead: Sequence[DeadLetter] = ()
    follow_ups: Sequence[ServiceEvent] = ()
    documents: Sequence[DocumentWrite] = ()
    checked: int = 0
    """The revision of the ledger of erasures that the effects were compared with."""


class Tick(msgspec.Struct, frozen=True):
    """One due run of a scheduled feature, with the event or events that start it."""

    feature: str
    due: datetime
    schedule: Schedule
    event: ServiceEvent
    everywhere: bool


class Bus(Protocol):
    """The durable, partitioned log of events, read by workers that hold leases.

    An event whose publish returned survives the death of every process. Events of one entity are
    in one partition, in the order in which their publishes returned. An event id published again
    for its entity within the dedup window is accepted once, and a conflict if its content differs;
    for another entity it is another event. The trace context of an event is read with it and not
    compared. A batch that was not committed is read again, by this
    worker or by the next owner; a committed batch is never read again.
    """

    partitions: int

    async def publish(
        self,
        events: Sequence[ServiceEvent],
        *,
        dedup_window: timedelta | None,
        subjects: Subjects = no_subjects,
        positions: bool = False,
    ) -> list[PublishResult]:
        """Append events, all or none, and return when they are durable.

        Duplicates and conflicts are left out; a timestamp that the sender did not give is not
        compared. Left out, too, are events of an erased entity, unless it may return and they are
        of after the erasure. With ``positions``, the result of an event that was appended has one.
        """

    async def handled(
        self, group: str, awaited: Sequence[Awaited], *, wait: bool = False
    ) -> list[frozenset[str] | None]:
        """Return the series that could not handle each event; None while it is not committed.

        With ``wait``, return when a consumer group has committed all of them, in any process. A
        notification ends the wait, and no commit is missed. What was committed is visible then.
        An event without a position stands for those that its partition has at the call, and the
        series are those that could not handle an event of its entity.
        """

    async def publish_ticks(self, ticks: Sequence[Tick]) -> list[datetime | None]:
        """Publish each tick unless it or a later one was published; return the last due time.

        The last due time is that of the previous tick, or the tick's own if it was not published.
        """

    async def read(
        self, leases: Sequence[Lease], limit: int, touches: Mapping[str, Collection[str]]
    ) -> list[Batch]:
        """Read the next uncommitted events of each partition, up to a limit over all of them.

        ``touches`` names the entities that an event type concerns; a batch includes their states.
        A partition in which the last read found nothing may be skipped until ``wait`` returns.
        """

    async def attempt(self, lease: Lease, position: str) -> int:
        """Count an attempt at a suspect event durably before it runs; return the count.

        The count is 0 if the owners that were presumed dead have sent a heartbeat since.
        """

    async def commit(self, outcome: BatchOutcome) -> None:
        """Commit values, documents, dead letters, follow-ups and the new position atomically.

        Raises:
            LeaseLostError, VersionConflictError: nothing of the outcome was stored; the latter
                names the entities that changed, and none if one was erased since ``checked``.
        """

    async def wait(self, worker: str, seconds: float) -> bool:
        """Wait until there may be events since a read found none, at most so many seconds.

        Return True if workers may have joined or left, so that partitions may be free.
        """

    async def lag(self) -> list[ConsumerLag]:
        """Return the lag of the consumer group in each partition."""

    async def backlog(self) -> int:
        """Return the number of uncommitted events."""

    async def memory(self) -> int | None:
        """Return about how many bytes of a server's memory the store takes.

        None if it is on disk, or the server does not tell.
        """


class Leases(Protocol):
    """The live workers of a consumer group, and the partitions that each of them holds.

    A partition has at most one valid lease. A dead worker's partitions can be claimed, at the
    latest when the time to live of its leases is over.

    Workers declare sets of features, and only the workers of one set hold partitions: the current
    set. That is, among the sets of the listed workers that no other contains, the one whose code
    was first registered last; of one code, the set that was. The others wait until no listed
    worker declares it. From the moment that a worker with the current set is registered, no lease
    of a set that it replaced is valid.
    """

    async def register(self, worker: str, declared: Collection[str] = (), code: str = "") -> None:
        """List a worker with the features that it declares, in place of those declared before.

        Workers of the same ``code`` declare other sets when the versions of features change; an
        empty one is that of the set alone. A worker that registers again has released its leases.
        """

    async def heartbeat(self, worker: str, leases: Sequence[Lease]) -> list[str]:
        """Extend the worker's leases; return the names of the live workers of the current set."""

    async def current_set(self, worker: str) -> frozenset[str]:
        """Return the features of the current set, as of the worker's last heartbeat."""

    async def claim(self, worker: str, partitions: Collection[int]) -> list[Lease]:
        """Claim the partitions that no other live worker holds; none if the worker must wait."""

    async def release(self, leases: Sequence[Lease]) -> None: ...

    async def retire(self, worker: str) -> None:
        """Stop listing the worker, so that others expect its partitions; it keeps its leases."""

    async def deregister(self, worker: str) -> None: ...


class ConsumerGroups(Protocol):
    """The consumer groups of the store; the workers of each get every event.

    A group begins with the claim of its first worker, in each partition at the oldest event that
    is kept. An event is kept until every group has committed it.
    """

    async def groups(self) -> list[ConsumerGroup]:
        """Return all groups by name, also those without live workers."""

    async def declared(self, name: str) -> dict[str, frozenset[str]]:
        """Return the live workers of a group, and the features that each of them declares."""

    async def create(self, name: str, like: str) -> dict[int, str]:
        """Create a group at the positions of another; return them, by partition.

        A group that exists keeps its positions, which are returned. "0" is the position before
        the first event; the partition of ticks is left out.
        """

    async def positions(self, name: str) -> dict[int, str]:
        """Return the last committed position of a group in each partition, "0" for none."""

    async def waiting(self, partition: int) -> dict[str, int]:
        """Return the number of events of a partition that each group has not committed."""

    async def drop(self, name: str) -> None:
        """Forget a group and its position, so that it holds back no event.

        Raises:
            UnknownGroupError, GroupInUseError: no such group, or it has live workers.
        """


class DeadLetters(Protocol):
    """Events that a feature could not handle, kept until they are redriven or discarded."""

    async def letters(self, query: DeadLetterQuery) -> list[DeadLetter]:
        """Return the dead letters that match all filters of the query, oldest or newest first."""

    async def summaries(self, limit: int) -> list[LetterSummary]:
        """Return dead letters without their events, newest first."""

    async def count(self) -> int:
        """Return the number of dead letters."""

    async def redrive(self, ids: Sequence[str]) -> None:
        """Publish each again for its failed feature only, and remove it, atomically.

        Only the consumer group in which the feature failed runs it.
        """

    async def discard(self, ids: Sequence[str]) -> None: ...
