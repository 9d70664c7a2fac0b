"""The catalog: the versions of features, and which of them is and was served."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headwater.core.short_repr import short_repr

VersionNumber = Annotated[
    int, Meta(ge=1, description="A version that is not served.", examples=[1])
]


class VersionList(msgspec.Struct, frozen=True):
    """The versions of a feature, the oldest first."""

    versions: Sequence[VersionSummary]


VersionState = Literal["building", "joining", "ready", "active", "retired"]
"""How far a version is.

``building``: a backfill replays past events into it. ``joining``: workers begin to run it, one
partition after the other. ``ready``: every worker keeps it fresh, next to the version that is
served. ``active``: it is served. ``retired``: another version is served in its place.
"""


class BackfillState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A backfill: the events that it replays, and the partitions in which workers have joined."""

    id: str
    since: datetime | None = None
    group: str
    """The consumer group that keeps the events after ``start`` until a worker has joined."""
    main_group: str
    """The consumer group whose workers run the feature, and join."""
    start: Mapping[int, str] = {}
    """The position of each partition up to which stored events are replayed."""
    joined: Mapping[int, str] = {}
    """The position of each partition after which workers run the new version."""


class FeatureVersion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A version of a feature: the series that its values are stored under, and its type."""

    number: int
    series: str
    state: VersionState
    type: str
    structure: str
    """A hash of the type, to notice that it has changed."""
    earlier_structures: Sequence[str] = []
    """Those of the types that it had before, which workers of an older file still declare."""
    definition: str = ""
    """A hash of the code that made it, which alone may run it; empty if that does not matter."""
    entity: str = ""
    """The entity that its series belongs to; empty for that of the entry."""
    converts: Sequence[str] = []
    """The series of earlier versions whose values are converted, the last one first."""
    conversion: str = ""
    """A hash of the function that converts values of earlier types, if one was declared."""
    created_at: datetime
    activated_at: datetime | None = None
    retired_at: datetime | None = None
    backfill: BackfillState | None = None

    def has_structure(self, structure: str) -> bool:
        """Return whether it is of a type, or was before."""
        return structure in (self.structure, *self.earlier_structures)


class Meaning(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a feature was from a moment on: its name, the version that was served, its default.

    A change takes effect when it is recorded, so ``since`` is also when it was known.
    """

    since: datetime
    name: str
    entity: str
    version: int | None = None
    """The version that was served; None, like its series, if none was stored."""
    series: str | None = None
    default: str | None = None
    """The JSON text of the default; None if there was none."""
    structure: str = ""
    """A hash of the type of the default; empty if it was not recorded."""


class Lifetime(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ttl of the values of a feature that were written from a moment on."""

    since: datetime
    ttl: timedelta | None = None


class CatalogEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A feature and its versions, oldest first."""

    feature: str
    entity: str
    versions: Sequence[FeatureVersion]
    former_names: Sequence[str] = ()
    """The names that it was renamed from, which mean it in processes that declare no other."""
    meanings: Sequence[Meaning] = []
    """What it was over time, oldest first; it is only added to."""
    lifetimes: Sequence[Lifetime] = []
    """How long its values lasted over time, oldest first; it is only added to."""
    run_since: datetime | None = None
    """When a worker ran it first; None if it has only been read or written."""

    def entity_of(self, version: FeatureVersion | None) -> str:
        """Return the entity that the values of a version belong to."""
        return version.entity or self.entity if version else self.entity

    @property
    def active(self) -> FeatureVersion | None:
        """The version that is served, or None if the feature was dropped."""
        return next((version for version in self.versions if version.state == "active"), None)


class VersionRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Since when a consumer group runs a version on an event type, and what it may have missed."""

    since: datetime
    """From then on no event is committed without it."""
    missed_since: datetime | None = None
    """Events that were accepted from then until ``since`` may have been committed without it."""
    left_at: datetime | None = None
    """Since when events are committed without it again."""


class DroppedFeature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a feature was over time that was dropped, with all its values."""

    meanings: Sequence[Meaning]
    dropped_at: datetime


class Horizons(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The moments before which history, events and records were pruned; None if never."""

    history: datetime | None = None
    events: datetime | None = None
    records: datetime | None = None


class NightlyRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The due time of the last nightly run that was completed, and the claim of the next one."""

    done: datetime | None = None
    claimed_until: datetime | None = None


class CatalogState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole catalog, by feature."""

    revision: int = 0
    features: Mapping[str, CatalogEntry] = {}
    dropped: Sequence[DroppedFeature] = []
    pruned: Horizons = Horizons()
    worked_since: datetime | None = None
    """When the first worker began to commit events; None if none ever did."""
    runs: Mapping[str, Mapping[str, VersionRun]] = {}
    """By consumer group, and by version and event type, such as ``total@2 on purchase``."""
    retention: NightlyRun = NightlyRun()

    def versions(self) -> Iterator[FeatureVersion]:
        """Yield the versions of all features."""
        for entry in self.features.values():
            yield from entry.versions


class VersionSummary(msgspec.Struct, frozen=True):
    """A version of a feature, and the number of its values: served, and in history."""

    feature: str
    version: int
    state: VersionState
    type: str
    since: datetime
    series: str
    online: int
    history: int

    __repr__ = short_repr("feature", "version", "state", "type")


class CatalogFeature(msgspec.Struct, frozen=True):
    """A feature, its versions, the oldest first, and whether the features file declares it."""

    feature: str
    entity: str
    versions: Sequence[int]
    is_declared: bool

    __repr__ = short_repr("feature", "entity", "versions", "is_declared")


class CatalogFeatures(msgspec.Struct, frozen=True):
    """All features of the catalog, by name."""

    features: Sequence[CatalogFeature]


class Dropped(msgspec.Struct, frozen=True):
    """The versions of a feature that were dropped, and how many values they had."""

    feature: str
    versions: Sequence[int]
    online: int
    history: int

    __repr__ = short_repr("feature", "versions", "online", "history")
