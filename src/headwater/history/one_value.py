"""One value over time: the rows of history of one feature and one entity."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple

from headwater.core.clock import MICROSECOND
from headwater.declarations.features import FeatureDef
from headwater.errors import InvalidInputError
from headwater.history.causes import MOST_CAUSES, CausedRow, events_behind
from headwater.model.features import CauseEvent, HistoricalValue
from headwater.ports import HistoryRow, OfflineStore

MOST_ROWS = 10_000


class ValuePage(NamedTuple):
    """Values over time, the newest first, and the ``end`` of the next page; None for the last."""

    values: list[HistoricalValue]
    next_end: datetime | None


async def values_over_time(
    offline: OfflineStore,
    feature: FeatureDef,
    entity_id: str,
    start: datetime | None,
    end: datetime | None,
    limit: int,
) -> list[HistoricalValue]:
    """Return the values of one entity with ``start <= as_of < end``, the newest first."""
    _check_range(feature, start, end, limit, MOST_ROWS)
    rows = await offline.rows(feature.series, entity_id, start=start, end=end, limit=limit)
    return [_value(feature, row) for row in rows]


async def page_of_values(
    offline: OfflineStore,
    feature: FeatureDef,
    entity_id: str,
    start: datetime | None,
    end: datetime | None,
    limit: int,
    event_types: Collection[str] = (),
) -> ValuePage:
    """Return a page of the values of one entity, with the events of these types behind them.

    Values of the moment at which a page ends may be repeated on the next one.
    """
    _check_range(feature, start, end, limit, MOST_CAUSES if event_types else MOST_ROWS)
    rows = await offline.rows(feature.series, entity_id, start=start, end=end, limit=limit + 1)
    shown = rows[:limit]
    events = await events_behind(offline, [CausedRow(entity_id, row) for row in shown], event_types)
    values = [_value(feature, row, event) for row, event in zip(shown, events, strict=True)]
    return ValuePage(values, _next_end(rows) if len(rows) > limit else None)


def _next_end(rows: Sequence[HistoryRow]) -> datetime:
    """Return the end of the next page, given the rows of this one and the first of the next."""
    first, following = rows[0].as_of, rows[-1].as_of
    # Values of the moment between two pages are on both, unless they fill a whole page.
    return following if first == following else following + MICROSECOND


def _value(
    feature: FeatureDef, row: HistoryRow, event: CauseEvent | None = None
) -> HistoricalValue:
    value = feature.codec.decode(row.value)
    return HistoricalValue(value, row.as_of, row.written_at, row.cause, event)


def _check_range(
    feature: FeatureDef, start: datetime | None, end: datetime | None, limit: int, most: int
) -> None:
    check_has_history(feature)
    if type(limit) is not int or not 1 <= limit <= most:
        raise InvalidInputError(f"limit is {limit!r}; give a number from 1 to {most}")
    for name, moment in (("start", start), ("end", end)):
        if moment is not None and moment.tzinfo is None:
            raise InvalidInputError(f"{name} needs a time zone, for example datetime.now(UTC)")


def check_has_history(feature: FeatureDef) -> None:
    """Raise InvalidInputError, with the reason, if no values of a feature are stored."""
    check_has_values(feature)
    if feature.template is not None:
        inputs = tuple(dict.fromkeys(feature.template.references))
        raise InvalidInputError(
            f"feature {feature.name!r} is a template, which is composed at every read and never "
            f"stored; {_read_instead(inputs)}, or compute past values with "
            "get_historical_features"
        )
    if feature.derived:
        raise InvalidInputError(
            f"feature {feature.name!r} is derived: it is computed at every read and never stored; "
            "read the history of the features that it reads, or compute past values "
            "with get_historical_features"
        )
    check_has_past(feature)


def check_has_values(feature: FeatureDef) -> None:
    """Raise InvalidInputError if a feature never has a value."""
    if feature.codec.kind == "none":
        raise InvalidInputError(
            f"feature {feature.name!r} is annotated `-> None`, so it never has a value; leave it "
            "out"
        )


def check_has_past(feature: FeatureDef) -> None:
    """Raise InvalidInputError if past values of a feature are neither stored nor computable."""
    if not (feature.has_history or feature.derived or feature.template):
        raise InvalidInputError(
            f"feature {feature.name!r} has no history, because it is computed at every read; "
            "declare it with log=True to keep the values that are served from now on, or with "
            "derived=True if it depends on nothing but the features that it reads"
        )


def _read_instead(inputs: Sequence[str]) -> str:
    return f"read that of {' and '.join(inputs)}" if inputs else "it never changes"
