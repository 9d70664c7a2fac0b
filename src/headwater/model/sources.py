"""The sources of SQL features: where they are, and the tables that were loaded from them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from headwater.core.short_repr import short_repr

SourceName = Annotated[
    str, Meta(min_length=1, description="The name of a source.", examples=["orders"])
]


class SourceTable(msgspec.Struct, frozen=True):
    """A table or view that queries read in place of a source."""

    name: str
    is_loaded: bool
    """Whether `sources load` made it; another one is never replaced."""
    rows: int | None = None
    loaded_at: datetime | None = None


class SourceStatus(msgspec.Struct, frozen=True):
    """A source, the features that read it, and what their queries read in its place."""

    __repr__ = short_repr("name", "location", "table")

    name: str
    location: Annotated[str, Meta(description="Its file or URL, without secrets.")]
    features: Sequence[str]
    is_read_directly: Annotated[
        bool, Meta(description="Whether queries read the source itself, and no table.")
    ]
    table: Annotated[
        SourceTable | None, Meta(description="The table or view, null if there is none.")
    ] = None


class SourceList(msgspec.Struct, frozen=True):
    """All declared sources."""

    sources: Sequence[SourceStatus]


class SourceColumn(msgspec.Struct, frozen=True):
    """A column of a loaded table, and its type in Postgres."""

    name: str
    type: str


class LoadedSource(msgspec.Struct, frozen=True):
    """What `sources load` has done with a source."""

    __repr__ = short_repr("name", "table", "rows")

    name: str
    table: Annotated[
        str | None,
        Meta(
            description="The table; null if queries read the source itself, so that none is made."
        ),
    ] = None
    rows: int = 0
    columns: Sequence[SourceColumn] = ()
