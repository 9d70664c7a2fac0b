"""Administration: requests, reports, the audit log and consumer groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from headwater.core.short_repr import short_repr
from headwater.core.tables import Tabular

Pointers = Annotated[
    Sequence[str],
    Meta(
        min_length=1,
        description="JSON pointers of values of the record.",
        examples=[["/inputs/question"]],
    ),
]
Age = Annotated[str, Meta(description="A duration, such as 36h, 30d, 8w or 2y.", examples=["400d"])]
DryRun = Annotated[bool, Meta(description="Count, and remove nothing.", examples=[True])]


Reason = Annotated[
    str, Meta(description="Why; it stays in the record.", examples=["requested by the customer"])
]
DecidedBy = Annotated[
    str, Meta(description="Who decided it; it stays in the record.", examples=["ops"])
]
Everywhere = Annotated[
    bool,
    Meta(
        description="Also erase every other value that equals or contains one of them.",
        examples=[False],
    ),
]


OUTCOMES = "outcomes/"
"""Comes before the id of an outcome among the places of copies."""


class Copies(msgspec.Struct, frozen=True):
    """Where else the values occur: pointers by context id.

    ``outcomes/ID`` is an outcome of the context, ``CONTEXT/outcomes/ID`` one of an inner context.
    """

    copies: dict[str, list[str]]


class ServedDifference(msgspec.Struct, frozen=True):
    """A value that a context got, and the one that history gives as known at that moment."""

    context_id: str
    feature: str
    entity_id: str
    at: datetime
    recorded: Any
    history: Any
    hint: str = ""
    """What in the feature's code makes its value depend on more than its inputs, if anything."""


class ServedReport(msgspec.Struct, frozen=True, kw_only=True):
    """A sample of recorded contexts, and how many of their values history gives as well.

    ``differences`` are examples of the different ones; ``not_compared`` counts the values that
    could not be compared, by reason.
    """

    records: int = 0
    values: int = 0
    equal: int = 0
    different: int = 0
    differences: Sequence[ServedDifference] = ()
    not_compared: Mapping[str, int] = {}

    __repr__ = short_repr("records", "values", "equal", "different")


class RebuildReport(msgspec.Struct, frozen=True):
    """How many entities history has, and how many values were written because they were newer."""

    entity_ids: int
    values: int

    __repr__ = short_repr("entity_ids", "values")


class BackupReport(msgspec.Struct, frozen=True):
    """A backup of an embedded home: where it is, of which moment, and how large."""

    folder: str
    created_at: datetime
    files: int
    bytes: int

    __repr__ = short_repr("folder", "files", "bytes")


class StoredValue(msgspec.Struct, frozen=True):
    """A value as it is stored online or in history."""

    value: msgspec.Raw
    as_of: datetime


class Difference(msgspec.Struct, frozen=True):
    """A value that differs between the online store and history; None where it is missing."""

    entity: str
    entity_id: str
    feature: str
    online: StoredValue | None
    history: StoredValue | None


class AuditReport(msgspec.Struct, frozen=True):
    """The result of a comparison; ``complete`` is False if it stopped at the limit."""

    entity_ids: int
    values: int
    differences: Sequence[Difference]
    not_compared: Sequence[str]
    complete: bool
    served: ServedReport = ServedReport()
    """The values of recorded contexts, compared with history."""

    __repr__ = short_repr("entity_ids", "values", "differences", "complete")


class PrunedPart(msgspec.Struct, frozen=True):
    """How many rows from before a moment were removed or, in a dry run, would be."""

    before: datetime
    rows: int


class PruneReport(msgspec.Struct, frozen=True, kw_only=True):
    """The removed rows; None for a part that was not to be pruned, or that a backfill needs."""

    history: PrunedPart | None = None
    events: PrunedPart | None = None
    records: PrunedPart | None = None
    dry_run: bool = False
    held: tuple[str, ...] = ()
    """Why less was removed than asked for."""


MentionKind = Literal["event", "value", "dead_letter"]


class Mention(msgspec.Struct, frozen=True, kw_only=True):
    """An event, a past value or a dead letter of another entity that contains an id."""

    kind: MentionKind
    name: str
    """The type of the event, or the series of the value."""
    entity_id: str
    """The id of the entity that it is about."""
    id: str
    """The id of the event or of the dead letter; of a value that of its event, or its cause."""
    at: datetime
    pointers: Sequence[str]
    """Where it contains the id: JSON pointers, the empty one for the whole value."""

    __repr__ = short_repr("kind", "name", "entity_id", "pointers")


class MentionPage(msgspec.Struct, Tabular, frozen=True, kw_only=True):
    """Mentions of an entity; ``next_cursor`` is None on the last page.

    A page may have fewer than asked for, also none, and be followed by another one.
    """

    mentions: Sequence[Mention]
    next_cursor: str | None

    def rows(self) -> Sequence[Mention]:
        return self.mentions

    __repr__ = short_repr("mentions", "next_cursor")


class MentionCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many events, past values and dead letters of other entities contain an id."""

    events: int = 0
    values: int = 0
    dead_letters: int = 0
    complete: bool = True
    """Whether all were counted; a count stops after a million candidates."""


class ForgetReport(msgspec.Struct, frozen=True, kw_only=True):
    """How many values, events, records and outcomes were erased or, in a dry run, would be.

    They are those of the entity and of what belongs to it; ``belonging`` has the ids of that by
    entity. ``mentions`` counts what other entities have with the id of the entity: it stays, and
    `mentions` lists it; it is None if it could not be counted.
    ``waiting`` counts the events of the entity's partition that some consumer group has not handled
    yet; those of this entity have no effect any more. ``sources`` are the SQL features whose query
    still returns the entity, and ``unchecked_sources`` those whose query could not be run: their
    rows are not stored, and stay where they are. ``topic`` is the topic of Kafka that has the
    events, those of the entity too, until its retention ends. ``lake_refs`` are the tags and
    branches of a lake, which are removed, because they kept the files of earlier snapshots.
    """

    values: int
    history: int
    events: int
    dead_letters: int
    records: int
    outcomes: int = 0
    waiting: int
    sources: tuple[str, ...] = ()
    unchecked_sources: tuple[str, ...] = ()
    topic: str = ""
    lake_refs: tuple[str, ...] = ()
    belonging: Mapping[str, Sequence[str]] = {}
    mentions: MentionCounts | None = None
    dry_run: bool = False


AuditOutcome = Literal["started", "done", "failed", "cancelled"]
"""How an action ended; ``started`` if it is running, or if its process died."""


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An administrative action; ``id`` is a UUIDv7 of the time it started at."""

    id: str
    at: datetime
    actor: str
    action: str
    target: str = ""
    parameters: Mapping[str, Any] = {}
    outcome: AuditOutcome = "started"
    finished_at: datetime | None = None
    error: str | None = None
    """The type of the error that ended the action; messages may contain personal values."""

    __repr__ = short_repr("at", "actor", "action", "target", "outcome")


class AuditPage(msgspec.Struct, Tabular, frozen=True, kw_only=True):
    """Audit entries, the newest first; `next_cursor` is None on the last page."""

    entries: Sequence[AuditEntry]
    next_cursor: str | None

    def rows(self) -> Sequence[AuditEntry]:
        return self.entries

    def __repr__(self) -> str:
        more = "the last page" if self.next_cursor is None else "more follow"
        return f"<AuditPage entries={len(self.entries)}, {more}>"


class ConsumerLag(msgspec.Struct, frozen=True):
    """The lag of one partition: owner, number of waiting events, and time of the oldest.

    ``committed`` counts the events that the group has committed; it only grows.
    """

    partition: int
    owner: str | None
    waiting: int
    oldest_at: datetime | None
    committed: int = 0

    __repr__ = short_repr("partition", "owner", "waiting", "oldest_at")


class ConsumerGroup(msgspec.Struct, frozen=True):
    """A consumer group: its live workers, its waiting events, and the time of its last commit.

    ``heartbeats`` are the times of the workers' last heartbeats, in the order of the workers.
    """

    name: str
    workers: Sequence[str]
    waiting: int
    oldest_at: datetime | None
    committed_at: datetime | None
    heartbeats: Sequence[datetime] = ()

    __repr__ = short_repr("name", "workers", "waiting", "oldest_at")


GroupName = Annotated[
    str, Meta(description="The name of a consumer group.", examples=["headwater_workers"])
]


class GroupList(msgspec.Struct, frozen=True):
    """All consumer groups."""

    groups: Sequence[ConsumerGroup]


class LagList(msgspec.Struct, frozen=True):
    """The lag of each partition, and the waiting events of all."""

    partitions: Sequence[ConsumerLag]
    waiting: int
