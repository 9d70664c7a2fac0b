"""Windows: the features that a family declares, and the tiles that their values are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from headwater.core.short_repr import short_repr
from headwater.core.tables import Tabular
from headwater.model.kinds import EntityId, EntityName, FeatureName
from headwater.model.values import Source


class WindowListing(msgspec.Struct, frozen=True, kw_only=True):
    """A window, by its duration; it moves in hops, so it covers up to one hop more."""

    window: str
    span_us: int
    hop_us: int
    covers: str


class MemberListing(WindowListing, frozen=True, kw_only=True):
    """What a feature of a family is; ``error`` is how far the value of a sketch may be off."""

    family: str
    aggregate: str
    error: str | None


class FamilyListing(msgspec.Struct, frozen=True, kw_only=True):
    """The windows and the features of a family, and which part of a contribution counts.

    ``plan`` changes with anything that decides what is kept online.
    """

    members: Sequence[str]
    windows: Sequence[WindowListing]
    aggregates: Sequence[str]
    value: str | None
    by: str | None
    max_keys: int | None
    where: Mapping[str, Any] | None
    plan: str


class WindowValue(msgspec.Struct, frozen=True, kw_only=True):
    """The value of one feature of a family; ``value`` is null if nothing contributed to it."""

    feature: FeatureName
    aggregate: str
    window: str
    value: Any
    source: Source


class WindowTile(msgspec.Struct, frozen=True, kw_only=True):
    """The contributions of one hop: from ``start`` until before ``end``.

    ``values`` are its aggregates by name; those of a keyed family are objects.
    """

    start: datetime
    end: datetime
    values: Mapping[str, Any]


class WindowLevel(msgspec.Struct, frozen=True, kw_only=True):
    """The tiles of one length, the oldest first; hops without a contribution have none."""

    hop_us: int
    windows: Sequence[str]
    """The windows that these tiles are of."""
    tiles: Sequence[WindowTile]


class EntityWindows(msgspec.Struct, Tabular, frozen=True, kw_only=True):
    """All windows of a family for one entity at one moment, and their tiles.

    ``last_fold`` is when the last contribution was added; null if there was none.
    """

    family: FeatureName
    entity: EntityName
    entity_id: EntityId
    as_of: datetime
    last_fold: datetime | None
    values: Sequence[WindowValue]
    levels: Sequence[WindowLevel]

    def rows(self) -> Sequence[WindowValue]:
        return self.values

    __repr__ = short_repr("family", "entity_id", "as_of", "last_fold")
