"""Reading feature values: requests, rows and past values."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from headwater.core.short_repr import short_repr
from headwater.core.tables import Table
from headwater.model.kinds import EntityId, EntityName, FeatureName
from headwater.model.lineage import FreshnessViolation
from headwater.model.problems import Problem
from headwater.model.values import FeatureValue, FreshnessRule, ServiceEvent, Source


class OneFeature(msgspec.Struct, frozen=True):
    """A feature's value for one entity."""

    feature: FeatureName
    entity_id: EntityId
    value: Any
    as_of: datetime | None
    age_ms: int | None
    source: Source


class FeaturesBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The features and entities to read."""

    entity_ids: Annotated[list[EntityId], Meta(examples=[["ada", "bob"]])]
    features: Annotated[list[FeatureName], Meta(min_length=1, examples=[["total_spend"]])]
    entity: EntityName | None = None


class Value(msgspec.Struct, frozen=True):
    """A value, its age and its source."""

    value: Any
    as_of: datetime | None
    age_ms: int | None
    source: Source


class EntityRow(msgspec.Struct, frozen=True):
    """The values of one entity, by feature."""

    entity_id: EntityId
    values: dict[str, Value]


class HistoryOfFeature(msgspec.Struct, frozen=True):
    """A feature's values for one entity over time, the newest first.

    ``next_end`` is the ``end`` of the next page, which may repeat values of the moment at which
    this one ends; null on the last page.
    """

    feature: FeatureName
    entity_id: EntityId
    values: list[HistoricalValue]
    next_end: datetime | None = None


class EntityValue(msgspec.Struct, frozen=True, kw_only=True):
    """A feature of one entity: its value with age and freshness, or the problem of reading it.

    ``sla_ms`` is the feature's own freshness SLA. ``is_fresh`` is null if neither the feature nor
    a value that it is computed from has one; ``violations`` names the values that are too old.
    """

    feature: FeatureName
    value: Any = None
    as_of: datetime | None = None
    written_at: datetime | None = None
    age_ms: int | None = None
    source: Source | None = None
    rule: FreshnessRule | None = None
    current_at: datetime | None = None
    sla_ms: int | None = None
    is_fresh: bool | None = None
    violations: Sequence[FreshnessViolation] = ()
    problem: Problem | None = None


class EntityValues(msgspec.Struct, frozen=True):
    """All features of one entity, in the order of their declaration."""

    entity: EntityName
    entity_id: EntityId
    read_at: datetime
    values: list[EntityValue]


class ManyFeatures(msgspec.Struct, frozen=True):
    """The values of several entities, in the order of the request."""

    entity: EntityName
    rows: list[EntityRow]


FeatureRow = dict[str, FeatureValue]
"""The values of one entity, by feature."""


_SUFFIXES = ("", "__as_of", "__source")


class ValueTable(Table[FeatureRow]):
    """Rows of values, which are those of these entities; a data frame has their ids and times."""

    def __init__(self, rows: Sequence[FeatureRow], entity_ids: Sequence[str | int]) -> None:
        super().__init__(rows)
        self.entity_ids = entity_ids

    def rows(self) -> list[dict[str, Any]]:
        return [
            {"entity_id": entity_id}
            | {
                f"{name}{suffix}": field
                for name, read in row.items()
                for suffix, field in zip(
                    _SUFFIXES, (read.value, read.as_of, read.source), strict=True
                )
            }
            for entity_id, row in zip(self.entity_ids, self, strict=True)
        ]


class HistoricalValue(msgspec.Struct, frozen=True):
    """A value that a feature had, and its cause: an event id, ``set``, ``computed``, ``passed``…

    ``event`` is the event with that id, if it was asked for and is in the log.
    """

    value: Any
    as_of: datetime
    written_at: datetime
    cause: str
    event: CauseEvent | None = None

    __repr__ = short_repr("value", "as_of", "cause")


class CauseEvent(msgspec.Struct, frozen=True):
    """The event that caused a value."""

    event_id: str
    event_type: str
    timestamp: datetime
    received_at: datetime


class TrialWrite(msgspec.Struct, frozen=True):
    """A value that a function would write: to history alone, unless it is ``online``."""

    feature: str
    entity_id: str
    value: Any
    as_of: datetime
    online: bool


class TrialDocument(msgspec.Struct, frozen=True):
    """A document that a function would write to an index, or remove if it has no text."""

    index: str
    document: str
    text: str | None


class FeatureTrial(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a feature's function, of which nothing was stored or published.

    ``value`` is what it returned. A family of windows writes what the event contributes, and
    ``windows`` has the values of its features after that.
    """

    feature: str
    entity_id: str
    value: Any
    event: ServiceEvent | None = None
    writes: Sequence[TrialWrite] = ()
    windows: dict[str, Any] = {}
    documents: Sequence[TrialDocument] = ()
    published: Sequence[ServiceEvent] = ()
    took_ms: float = 0.0

    __repr__ = short_repr("feature", "entity_id", "value")
