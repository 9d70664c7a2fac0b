"""The rows that the query of a SQL feature returns, as values of the feature."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

import msgspec

from headwater.core.clock import to_micros
from headwater.core.sql_sources import place_of
from headwater.declarations.features import FeatureDef
from headwater.errors import (
    FeatureFailedError,
    FeatureValueError,
    HeadwaterError,
    InvalidInputError,
)
from headwater.features.cells import make_cell, make_change
from headwater.model.values import Cell
from headwater.ports import Change, Rows


class QueryColumns(msgspec.Struct, frozen=True):
    """The places of entity id, value and, if there is one, timestamp in the rows of a query."""

    entity_id: int
    value: int
    timestamp: int | None


class QueryValues(msgspec.Struct, frozen=True):
    """The values of a query, and the rows that cannot be stored, each with its entity id."""

    changes: Sequence[Change]
    refused: Sequence[tuple[str, HeadwaterError]]


def query_columns(feature: FeatureDef, columns: Sequence[str]) -> QueryColumns:
    """Return the columns of a feature's query; raise InvalidInputError if one is missing."""
    columns = list(columns)
    entity_id = place_of(feature.entity.id_field, columns)
    values = (place_of(name, columns) for name in ("value", feature.name))
    value = next((place for place in values if place is not None), None)
    if entity_id is None or value is None:
        raise InvalidInputError(
            f"the query of feature {feature.name!r} returns the columns {', '.join(columns)}; "
            f"it must return {feature.entity.id_field!r} and 'value' (or {feature.name!r})"
        )
    return QueryColumns(entity_id, value, place_of("timestamp", columns))


def query_values(feature: FeatureDef, rows: Rows, now: datetime, cause: str) -> QueryValues:
    """Return the values of a query; of several rows of one entity and moment the last one."""
    columns = query_columns(feature, rows.columns)
    changes: dict[tuple[str, int], Change] = {}
    refused: list[tuple[str, HeadwaterError]] = []
    for row in rows.rows:
        if row[columns.entity_id] is None:
            continue
        entity_id, moment = str(row[columns.entity_id]), now
        try:
            if columns.timestamp is not None:
                moment = min(now, _moment(feature, entity_id, row[columns.timestamp]))
            cell = _cell(feature, row[columns.value], moment, now)
        except (FeatureValueError, FeatureFailedError) as error:
            refused.append((entity_id, error))
        else:
            changes[entity_id, cell.as_of] = make_change(
                feature, entity_id, cell, cause, begins=False
            )
    return QueryValues(list(changes.values()), refused)


def _cell(feature: FeatureDef, value: object, moment: datetime, now: datetime) -> Cell:
    if isinstance(value, Decimal) and feature.codec.kind == "float":
        value = float(value)  # databases return averages of integers as decimals
    return make_cell(feature, value, to_micros(moment), to_micros(now))


def _moment(feature: FeatureDef, entity_id: str, timestamp: object) -> datetime:
    if not isinstance(timestamp, datetime):
        problem = f"the query returns {timestamp!r} as timestamp, which is not a date and time"
        raise FeatureFailedError(feature.name, entity_id, problem)
    if timestamp.tzinfo is None:
        problem = (
            f"the query returns {timestamp} as timestamp, without a time zone; name its zone, for "
            "example: ordered_at AT TIME ZONE 'UTC' AS timestamp"
        )
        raise FeatureFailedError(feature.name, entity_id, problem)
    return timestamp
