"""Bodies of the routes that read feature values."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from headwater.core.values import Source
from headwater.history.one_value import HistoricalValue


class OneFeature(msgspec.Struct, frozen=True):
    """A feature's value for one entity."""

    feature: str
    entity_id: str
    value: Any
    as_of: datetime | None
    age_ms: int | None
    source: Source


class FeaturesBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The features and entities to read."""

    entity_ids: list[str]
    features: list[str]
    entity: str | None = None


class Value(msgspec.Struct, frozen=True):
    """A value, its age and its source."""

    value: Any
    as_of: datetime | None
    age_ms: int | None
    source: Source


class EntityRow(msgspec.Struct, frozen=True):
    """The values of one entity, by feature."""

    entity_id: str
    values: dict[str, Value]


class HistoryOfFeature(msgspec.Struct, frozen=True):
    """A feature's values for one entity over time, the newest first."""

    feature: str
    entity_id: str
    values: list[HistoricalValue]


class ManyFeatures(msgspec.Struct, frozen=True):
    """The values of several entities, in the order of the request."""

    entity: str
    rows: list[EntityRow]
