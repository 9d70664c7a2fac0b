"""The tables of a lake: their sizes and snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from headwater.core.short_repr import short_repr


class LakeTableStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The size of one table of a lake, and its snapshots."""

    __repr__ = short_repr("table", "files", "rows", "snapshots")

    table: Annotated[str, Meta(description="`history` or `events`.")]
    location: str
    files: int
    small_files: Annotated[
        int, Meta(description="Files with fewer rows than `offline.segment_rows`.")
    ]
    rows: int
    bytes: int
    waiting: Annotated[
        bool,
        Meta(description="Whether the tail has `offline.segment_rows` rows that may be moved."),
    ]
    snapshots: int
    snapshot_id: Annotated[int | None, Meta(description="The present one; null if it is empty.")]
    oldest_snapshot: Annotated[
        datetime | None, Meta(description="The time of the oldest one that can be read.")
    ]
    upto: Annotated[
        str, Meta(description="The mark up to which the rows of the tail are in the table.")
    ]


class LakeStatus(msgspec.Struct, frozen=True):
    """The tables of a lake, none if the store has no lake."""

    tables: Sequence[LakeTableStatus]


class ExpiredSnapshots(msgspec.Struct, frozen=True):
    """How many files were deleted with the snapshots from before a moment."""

    before: datetime
    files: int
