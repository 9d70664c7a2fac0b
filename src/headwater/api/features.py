"""Bodies of the routes that read feature values."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from headwater.api.kinds import EntityId, EntityName, FeatureName
from headwater.core.values import Source
from headwater.history.one_value import HistoricalValue


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
    """A feature's values for one entity over time, the newest first."""

    feature: FeatureName
    entity_id: EntityId
    values: list[HistoricalValue]


class ManyFeatures(msgspec.Struct, frozen=True):
    """The values of several entities, in the order of the request."""

    entity: EntityName
    rows: list[EntityRow]
