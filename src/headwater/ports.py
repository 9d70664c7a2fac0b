"""Every seam between Headwater and a backend, with the promises a signature cannot make.

Each promise below is a test of the same words in ``headwater.testing``. All methods take batches;
a single is a batch of one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from headwater.encoding import Kind
from headwater.values import Cell, Cells, EntityKey, ServiceEvent, merged


class Published(msgspec.Struct, frozen=True, gc=False):
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


class EntityState(msgspec.Struct, frozen=True, gc=False):
    """An entity's values and the version they were read at; 0 for an entity that has none."""

    version: int
    cells: Cells


class Batch(msgspec.Struct, frozen=True):
    """The next events of one partition and the state of every entity they touch."""

    lease: Lease
    deliveries: Sequence[Delivery]
    states: Mapping[EntityKey, EntityState]


class Change(msgspec.Struct, frozen=True, gc=False):
    """A value that a feature took on: a row of history, and online unless it came too late."""

    feature: str
    entity: str
    entity_id: str
    kind: Kind
    cell: Cell
    cause: str
    online: bool = True
    authoritative: bool = True

    @property
    def key(self) -> EntityKey:
        return (self.entity, self.entity_id)


def by_entity(changes: Iterable[Change]) -> dict[EntityKey, list[Change]]:
    """The changes that are to be seen online, by entity."""
    found: dict[EntityKey, list[Change]] = {}
    for change in changes:
        if change.online:
            found.setdefault(change.key, []).append(change)
    return found


def newest(changes: Iterable[Change]) -> Cells:
    """One entity's values after its changes: of each feature the one of the latest moment."""
    cells: Cells = {}
    for change in changes:
        cells = merged(cells, {change.feature: change.cell})
    return cells


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


class Lag(msgspec.Struct, frozen=True):
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
    ) -> list[Published]:
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
        """Counts a run of a suspect event durably before it runs; gives the count."""
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

    async def lag(self) -> list[Lag]:
        """How far the workers of the group are behind in each partition."""
        ...

    async def backlog(self) -> int:
        """Counts the events that wait to be committed."""
        ...


class Roster(Protocol):
    """Which workers are alive and which partitions each of them holds.

    A partition has at most one valid lease. A dead worker's partitions can be claimed, at the
    latest when the lease's time to live is over.
    """

    async def join(self, worker: str) -> None: ...

    async def beat(self, worker: str, leases: Sequence[Lease]) -> list[str]:
        """Shows that the worker is well, prolongs its leases, and lists all workers that are."""
        ...

    async def claim(self, worker: str, partitions: Collection[int]) -> list[Lease]:
        """Takes those of the partitions that no other living worker holds."""
        ...

    async def release(self, leases: Sequence[Lease]) -> None: ...

    async def retire(self, worker: str) -> None:
        """Lists the worker no longer, so that others want its partitions; it keeps them so far."""
        ...

    async def leave(self, worker: str) -> None: ...


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


class OnlineStore(Protocol):
    """The present values of every entity.

    A read sees every write that returned before it began. A value whose time to live is over is
    still returned; its cell says so, and readers treat it as absent.
    """

    async def get(self, entity: str, entity_ids: Sequence[str]) -> list[Cells]:
        """The values of each entity, in the order asked, empty for an unknown one."""
        ...

    async def get_packed(self, entity: str, entity_ids: Sequence[str]) -> list[bytes | msgspec.Raw]:
        """The same as the JSON text of ``Cells``, for readers that want only a part of it."""
        ...

    async def get_state(self, key: EntityKey) -> EntityState:
        """One entity's values with their version, for a later commit to check."""
        ...

    async def put(self, changes: Sequence[Change]) -> None:
        """Writes values online and to history as one; other values of the entities stay.

        A change that speaks of an earlier moment than the value online goes to history alone.
        A change that is not authoritative, such as a cached computation, does not disturb
        batches that are being run.
        """
        ...

    async def restore(self, entity: str, values: Mapping[str, Cells]) -> None:
        """Writes values that history already holds, by entity id, where online has none or older.

        A value online stays if it speaks of a later moment, or of the same one and was written
        no earlier. Entities that stay as they are do not disturb batches that are being run.
        """
        ...

    async def entity_ids(
        self,
        entity: str,
        *,
        after: str,
        limit: int,
        partition: int | None = None,
        having: str | None = None,
    ) -> list[str]:
        """The next known ids of an entity in sorted order, of one partition or with one feature."""
        ...


class Point(msgspec.Struct, frozen=True):
    """One entity at one moment."""

    entity_id: str
    at: datetime


class PastValue(msgspec.Struct, frozen=True):
    """A value as history keeps it: its JSON text, when it was true and when it was written."""

    value: bytes
    as_of: datetime
    written_at: datetime


class Rows(msgspec.Struct, frozen=True):
    """The result of a query: column names and rows in order."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


class OfflineStore(Protocol):
    """Everything that was: the history of every value, and the log of every event.

    A value that a commit or a put made durable is in history from that moment on. Appending the
    same changes again changes nothing.
    """

    async def append(self, changes: Sequence[Change]) -> None:
        """Adds past values in bulk, without touching the present ones."""
        ...

    async def as_of(
        self, features: Sequence[str], points: Sequence[Point], *, known: bool = False
    ) -> list[list[PastValue | None]]:
        """For each point, the last value of each feature that was true then, never a later one.

        With ``known``, also written by then: exactly what a reader would have been served. Among
        values of one moment, the one written last wins.
        """
        ...

    async def latest(
        self, entity: str, *, after: str, limit: int
    ) -> list[tuple[str, dict[str, PastValue]]]:
        """The next ids of an entity in sorted order, each with the last value of every feature.

        The last value is the one that ``as_of`` would give at the end of time.
        """
        ...

    async def query(self, sql: str, sources: Mapping[str, str]) -> Rows:
        """Runs a query over sources, the event log (``events``) and ``feature_history``."""
        ...

    async def maintain(self) -> None:
        """Does the housekeeping that is due; safe to call from many processes."""
        ...


LogKind = Literal["history", "events"]


class Segment(msgspec.Struct, frozen=True):
    """A file of rows that left the tail; a retired one has been merged into another."""

    name: str
    kind: LogKind
    rows: int
    retired_at: datetime | None = None


class Snapshot(msgspec.Struct, frozen=True):
    """One log at one moment: its live segments, and its tail as a file of JSON lines."""

    segments: Sequence[Segment]
    tail: Path
    longest: int


class Tail(Protocol):
    """The newest rows of history and events, and the manifest of the segments that hold the rest.

    Its methods block and are called in a thread. Sequence numbers grow in the order of commits
    and never come back. Whoever changes the manifest is the only one to do so at that time.
    """

    def snapshot(
        self,
        folder: Path,
        kinds: Sequence[LogKind],
        *,
        features: Sequence[str] = (),
        entity_ids: Sequence[str] = (),
        upto: int | None = None,
    ) -> dict[LogKind, Snapshot]:
        """Exports the tails of some logs into a folder, all of one moment, each row once.

        History may be limited to some features and entities, any log to its oldest rows. Times
        are microseconds. An event that was published again for one feature alone is left out.
        """
        ...

    def bound(self, kind: LogKind, rows: int) -> int | None:
        """The number of the so-manieth oldest row that may leave the tail, if there are as many.

        An event may leave when every consumer group is done with it and all before it.
        """
        ...

    def manifest(self) -> list[Segment]:
        """All segments, also the retired ones."""
        ...

    def add(self, segment: Segment, *, upto: int = 0) -> None:
        """Adds a segment and removes the rows of the tail that it holds, as one."""
        ...

    def replace(self, names: Sequence[str], merged: Segment, now: datetime) -> None:
        """Adds a segment and retires those that were merged into it, as one."""
        ...

    def forget(self, names: Sequence[str]) -> None:
        """Takes segments whose files are gone out of the manifest."""
        ...

    def reserve(self, rows: int) -> int:
        """Sets sequence numbers of history aside for an import; gives the first."""
        ...

    def prune(self, now: datetime) -> None:
        """Forgets event ids whose dedup window is over, a bounded number of them."""
        ...


class Parcel(msgspec.Struct, frozen=True):
    """Rows on their way from the present to the past: a JSON array, and where it ends.

    A row of history is ``[feature, entity, entity_id, kind, value, as_of, written_at, cause]``; one
    of events ``[position, received_at, event_type, entity_id, event_id, timestamp, payload]``.
    Times are microseconds.
    """

    rows: bytes
    count: int
    upto: str
    more: bool = False
    """Whether there may be more behind it."""


class Outbox(Protocol):
    """What a server of the present has committed and a server of the past has yet to take.

    It is kept by partition. Whoever takes it remembers how far, in the same transaction that
    keeps the rows, so that each row arrives once however often it is fetched.
    """

    partitions: int

    async def filled(self) -> set[int]:
        """The partitions that may have something to take."""
        ...

    async def fetch(self, kind: LogKind, partition: int, after: str, limit: int) -> Parcel | None:
        """The next rows after a position ("" for the start), none if there are none."""
        ...

    async def settle(self, partition: int, history: str, events: str) -> None:
        """Lets go of rows up to these positions; events as far as every group is done with them."""
        ...


class RecordSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a list of records says of each."""

    context_id: str
    record_hash: str
    content_hash: str
    name: str
    created_at: datetime
    freshness_status: str


class StoredRecord(RecordSummary, frozen=True, kw_only=True):
    """A context's record as it lies in the log: bytes that are given back as they came."""

    core: bytes
    disclosures: bytes
    signature: bytes | None = None
    redactions: bytes = b"[]"


class RecordLog(Protocol):
    """The records of all contexts: immutable, found by id, by hash and by what they were made of.

    A record whose append returned survives the death of every process, and all readers see it
    from then on. Two records are the same if their hashes are.

    Lists go from the newest to the oldest by ``created_at``, and by id among records of one moment.
    They go on after the record whose id is ``before``; what is appended meanwhile moves nothing.
    An id that no record has is refused there.
    """

    async def append(self, record: StoredRecord, keys: Collection[bytes]) -> None:
        """Keeps a record, to be found by these keys; appends of one time share a commit.

        The same record again changes nothing, not even what was redacted meanwhile. Another one
        under its id is refused with ImmutableRecordError, a text that cannot be kept with
        InvalidInputError, and no other append with it.
        """
        ...

    async def get(self, ref: str) -> StoredRecord | None:
        """The record with this context id or record hash."""
        ...

    async def ids_beginning(self, prefix: str, limit: int) -> list[str]:
        """Context ids that begin so, in sorted order."""
        ...

    async def records(
        self,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        name: str | None = None,
        freshness_status: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> list[RecordSummary]:
        """Lists records that fit everything that is given: from ``start`` on, before ``end``."""
        ...

    async def find(
        self, key: bytes, *, before: str | None = None, limit: int = 100
    ) -> list[RecordSummary]:
        """Lists records that were appended with this key."""
        ...

    async def redact(
        self, context_id: str, *, expected: bytes, disclosures: bytes, redactions: bytes
    ) -> bool:
        """Replaces a record's disclosures and redactions if its redactions are as expected.

        Says whether it did. Everything else of a record stays as it is.
        """
        ...


class Cached(msgspec.Struct, frozen=True):
    """A value that was kept for a while, and since when, in microseconds."""

    value: bytes
    kept_at: int


class Cache(Protocol):
    """Values that may be lost at any time, shared by all processes of a store."""

    async def get(self, key: str) -> Cached | None:
        """The value, unless its time to live is over."""
        ...

    async def put(self, key: str, cached: Cached, ttl: timedelta) -> None:
        """Keeps a value in place of an earlier one; its time to live begins at ``kept_at``."""
        ...


class Health(msgspec.Struct, frozen=True):
    """Whether a part can do its work, and what is wrong if it cannot.

    Without a part that is not needed, events are still accepted and values served.
    """

    name: str
    ok: bool
    detail: str = ""
    needed: bool = True


class Backends(msgspec.Struct, frozen=True):
    """One environment: a backend behind every port, and how to close them."""

    bus: Bus
    roster: Roster
    dead_letters: DeadLetters
    online: OnlineStore
    offline: OfflineStore
    lifecycle: Lifecycle
    records: RecordLog = None  # type: ignore[assignment]
    cache: Cache = None  # type: ignore[assignment]


class Lifecycle(Protocol):
    """The opening, the health and the end of an environment."""

    async def health(self) -> list[Health]: ...

    async def restored(self) -> None:
        """Takes note that the present values were restored from history."""
        ...

    async def close(self) -> None: ...
