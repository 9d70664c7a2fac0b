"""History as a whole: sent tables, imports and exports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from headwater.core.short_repr import short_repr
from headwater.model.catalog import CatalogState

PARQUET = "application/vnd.apache.parquet"
CSV = "text/csv"

FeatureNames = Annotated[
    str,
    Meta(
        description="Names of features, separated by commas.",
        examples=["total_spend"],
        min_length=1,
    ),
]
ColumnName = Annotated[str, Meta(description="The name of a column.", examples=["timestamp"])]
TimeZoneName = Annotated[
    str, Meta(description="The time zone of times that have none.", examples=["UTC"])
]
Known = Annotated[
    bool, Meta(description="Only values that had been written by that time.", examples=[False])
]
WithAsOf = Annotated[
    bool, Meta(description="Add a column with the time of each value.", examples=[False])
]


SNAPSHOT = "headwater.snapshot"
"""The metadata of a Parquet file with the snapshot of the lake that it was read from."""
SnapshotId = Annotated[
    int, Meta(description="Read a snapshot of the lake.", examples=[6735091284573894129])
]


class SentTable(msgspec.Struct, frozen=True):
    """A table that was sent before: its size, and the columns with values as JSON text."""

    bytes: int
    json_columns: Sequence[str] = ()


class ExportBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rows of history to send: those after a sequence number."""

    after: Annotated[
        int, Meta(ge=0, le=2**63 - 1, description="The last row that the client has.", examples=[0])
    ] = 0


class SentHistory(msgspec.Struct, frozen=True):
    """Rows of history that were sent before: their size, and the last sequence number."""

    bytes: int
    upto: int


class HistoryCatalog(msgspec.Struct, frozen=True):
    """The versions of all features, and the time at the server."""

    catalog: CatalogState
    now: datetime


class ImportReport(msgspec.Struct, frozen=True):
    """What an import has read: rows, values and missing values."""

    rows: int
    values: int
    added: int
    """The values that were not in history before."""
    missing: int
    erased: int = 0
    """The values that were left out, because their entities were erased."""
    states: int = 0
    """The entities whose windows were made again with the imported contributions."""

    __repr__ = short_repr("rows", "values", "added", "missing")


class ExportReport(msgspec.Struct, frozen=True):
    """The rows that an export added, and the rows and files that the folder has now."""

    added: int
    rows: int
    files: int
    exported_at: datetime


class FeastView(msgspec.Struct, frozen=True):
    """A feature view of a Feast repository: its name, entity, features and rows."""

    name: str
    entity: str
    features: Sequence[str]
    rows: int


class FeastReport(msgspec.Struct, frozen=True):
    """What an export for Feast has written, and the features that it left out, with the reasons."""

    views: Sequence[FeastView]
    left_out: Mapping[str, str]
