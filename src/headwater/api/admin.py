"""Bodies of the routes for administrators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headwater.api.kinds import (
    EntityId,
    EntityIdFilter,
    EntityName,
    EventTypeFilter,
    FeatureFilter,
    Limit,
    Moment,
)
from headwater.history.feature_catalog import VersionSummary
from headwater.ports import ConsumerGroup, ConsumerLag, DeadLetter, LoggedEvent

MOST_LETTERS = 10_000
LetterId = Annotated[str, Meta(description="The id of a dead letter.", examples=["17"])]
LetterLimit = Annotated[
    int, Meta(ge=1, le=MOST_LETTERS, description="How many at most.", examples=[20])
]
LetterIds = Annotated[
    Sequence[LetterId],
    Meta(min_length=1, max_length=MOST_LETTERS, description="The dead letters.", examples=[["17"]]),
]
LetterCursor = Annotated[
    str, Meta(description="The id of the last letter of the page before.", examples=["17"])
]
ErrorFilter = Annotated[
    str,
    Meta(
        description="Only letters whose error is of this kind, the ``error`` of a group.",
        examples=["KeyError: 'item'"],
    ),
]
NewestFirst = Annotated[bool, Meta(description="Not the oldest first.", examples=[True])]
GroupName = Annotated[
    str, Meta(description="The name of a consumer group.", examples=["headwater_workers"])
]
Pointers = Annotated[
    Sequence[str],
    Meta(
        min_length=1,
        max_length=1_000,
        description="JSON pointers of values of the record.",
        examples=[["/inputs/question"]],
    ),
]
VersionNumber = Annotated[
    int, Meta(ge=1, description="The number of a version that is not served.", examples=[1])
]
Age = Annotated[str, Meta(description="A duration, such as 36h, 30d, 8w or 2y.", examples=["400d"])]
DryRun = Annotated[bool, Meta(description="Count, and remove nothing.", examples=[True])]


class DeadLetterList(msgspec.Struct, frozen=True):
    """Dead letters, the oldest first."""

    dead_letters: Sequence[DeadLetter]


class DeadLetterSelection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The dead letters to redrive or discard: all that match every field, the oldest first.

    With ``ids`` alone, either all are settled or none, unless ``partial`` is true: then those that
    are there are settled, and the others are ``gone``.
    """

    ids: LetterIds | None = None
    feature: FeatureFilter | None = None
    event_type: EventTypeFilter | None = None
    entity_id: EntityIdFilter | None = None
    since: Moment | None = None
    before: Moment | None = None
    error: ErrorFilter | None = None
    limit: LetterLimit = MOST_LETTERS
    partial: Annotated[
        bool,
        Meta(description="Settle the ids that are there, and report the others.", examples=[True]),
    ] = False


class SettledLetter(msgspec.Struct, frozen=True):
    """What happened to a dead letter; ``gone`` if another call settled it first."""

    id: str
    outcome: Literal["redriven", "discarded", "gone"]


class SettledLetters(msgspec.Struct, frozen=True):
    """What happened to each dead letter, the oldest first."""

    dead_letters: Sequence[SettledLetter]


class GroupList(msgspec.Struct, frozen=True):
    """All consumer groups."""

    groups: Sequence[ConsumerGroup]


class LagList(msgspec.Struct, frozen=True):
    """The lag of each partition."""

    partitions: Sequence[ConsumerLag]


class EventList(msgspec.Struct, frozen=True):
    """Accepted events, the newest first."""

    events: Sequence[LoggedEvent]


class VersionList(msgspec.Struct, frozen=True):
    """The versions of a feature, the oldest first."""

    versions: Sequence[VersionSummary]


class RenameBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The new name of a feature."""

    new: Annotated[str, Meta(description="The new name.", examples=["spend"])]


class DroppedIndex(msgspec.Struct, frozen=True):
    """An index that was dropped, and the number of documents that it had."""

    index: str
    documents: int


class RedactBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The values of a record to erase, as JSON pointers, and why."""

    pointers: Pointers
    reason: Annotated[
        str,
        Meta(description="Why; it stays in the record.", examples=["requested by the customer"]),
    ]
    by: Annotated[
        str | None, Meta(description="Who decided it; it stays in the record.", examples=["ops"])
    ] = None
    everywhere: Annotated[
        bool,
        Meta(
            description="Also erase every other value that equals or contains one of them.",
            examples=[False],
        ),
    ] = False


class PointersBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Values of a record, as JSON pointers."""

    pointers: Pointers


class Copies(msgspec.Struct, frozen=True):
    """Where else the values occur: pointers by context id."""

    copies: Mapping[str, Sequence[str]]


class RebuildBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a rebuild."""

    adopt: Annotated[
        bool, Meta(description="Take over the history of another store.", examples=[False])
    ] = False


class AuditBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a comparison of online values with history."""

    limit: Limit = 100
    records: Annotated[
        int, Meta(ge=0, le=10_000, description="How many contexts to compare.", examples=[100])
    ] = 100


class PruneBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ages beyond which rows are removed; without any, those of the settings apply."""

    history: Age | None = None
    events: Age | None = None
    records: Age | None = None
    dry_run: DryRun = False


class ForgetBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The entity to erase, and why."""

    entity: EntityName
    entity_id: EntityId
    reason: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=1_000,
            description="The reason; it stays in the records, so it names no person.",
            examples=["request 12"],
        ),
    ]
    allow_return: Annotated[
        bool,
        Meta(description="Whether events of after this begin the entity anew.", examples=[True]),
    ] = False
    dry_run: DryRun = False
