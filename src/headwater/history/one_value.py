"""One value over time: its rows of history, and the events behind them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from headwater.core.clock import MICROSECOND
from headwater.core.sql_literals import text, texts
from headwater.declarations.features import FeatureDef
from headwater.errors import InvalidInputError
from headwater.features.call_scope import track_source
from headwater.features.caller_limits import limited_caller
from headwater.features.ownership import Ownership
from headwater.features.services import Services
from headwater.history.window_curve import PASSED, curve_page
from headwater.model.features import CauseEvent, HistoricalValue
from headwater.ports import HistoryRow, OfflineStore

MOST_ROWS = 10_000
MOST_CAUSES = 1_000

NOT_EVENTS = frozenset({"set", "computed", "served", PASSED})
"""The causes of values that are not the ids of events."""


class ValuePage(NamedTuple):
    """Values over time, the newest first, and the ``end`` of the next page; None for the last."""

    values: list[HistoricalValue]
    next_end: datetime | None


class CausedRow(NamedTuple):
    """A row of history and its entity."""

    entity_id: str
    row: HistoryRow


class ValueHistory:
    """The rows of history of single features and entities, in an open store."""

    def __init__(self, services: Services) -> None:
        self._registry = services.registry
        self._offline = services.backends.offline
        self._ownership = Ownership(services)
        self._catalog = services.catalog
        self._clock = services.clock

    async def page(
        self,
        name: str,
        entity_id: str | int,
        start: datetime | None,
        end: datetime | None,
        limit: int,
        *,
        events: bool = False,
    ) -> ValuePage:
        """Return the values with ``start <= as_of < end``, the newest first, and their events.

        Values of the moment at which a page ends may be repeated on the next one. A window has a
        value at each contribution, and where it falls because contributions have left it.
        """
        feature, text_id = await self._checked(name, entity_id)
        declared = self._registry.features.values() if events else ()
        types = {event_type for other in declared for event_type in other.triggers}
        _check_range(feature, start, end, limit, MOST_CAUSES if types else MOST_ROWS)
        if feature.window is not None:
            rows, next_end = await self._curve(feature, text_id, start, end, limit)
        else:
            rows, next_end = await self._rows(feature, text_id, start, end, limit)
        behind = await events_behind(
            self._offline, [CausedRow(text_id, row) for row in rows], types
        )
        decode = feature.codec.decode
        values = [
            HistoricalValue(
                None if row.value == b"null" else decode(row.value),
                row.as_of,
                row.written_at,
                row.cause,
                event,
            )
            for row, event in zip(rows, behind, strict=True)
        ]
        return ValuePage(values, next_end)

    async def _rows(
        self,
        feature: FeatureDef,
        entity_id: str,
        start: datetime | None,
        end: datetime | None,
        limit: int,
    ) -> tuple[Sequence[HistoryRow], datetime | None]:
        (rows,) = await self._offline.rows(
            feature.series, [entity_id], start=start, end=end, limit=limit + 1
        )
        if len(rows) <= limit:
            return rows, None
        first, following = rows[0].as_of, rows[-1].as_of
        # Values of the moment between two pages are on both, unless they fill a whole page.
        return rows[:limit], following if first == following else following + MICROSECOND

    async def _curve(
        self,
        feature: FeatureDef,
        entity_id: str,
        start: datetime | None,
        end: datetime | None,
        limit: int,
    ) -> tuple[Sequence[HistoryRow], datetime | None]:
        # It is not known yet what will leave the window, and what will come.
        latest = self._clock.now() + MICROSECOND
        until = latest if end is None else min(end, latest)
        earliest = (await self._catalog.follow()).pruned.history
        return await curve_page(self._offline, feature, entity_id, start, until, limit, earliest)

    async def _checked(self, name: str, entity_id: str | int) -> tuple[FeatureDef, str]:
        """Return a feature and an id whose history the caller may read, and track the read."""
        feature = self._registry.feature(name)
        feature.check_stored()
        text_id = feature.entity.text_id(entity_id)
        limited = limited_caller()
        if limited is not None:
            await limited.check_entity(self._ownership, feature.entity.name, text_id)
        track_source("feature", feature.entity.name, feature.name, text_id)
        if not feature.stored and feature.window is None:
            # History does not say what a value was computed from.
            track_source("other", "past values of a computed feature")
        return feature, text_id


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
        inputs = " and ".join(dict.fromkeys(feature.template.references))
        remedy = f"read that of {inputs}" if inputs else "it never changes"
        raise InvalidInputError(
            f"feature {feature.name!r} is a template, which is composed at every read and never "
            f"stored; {remedy}, or compute past values with get_historical_features"
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
    if not (feature.has_history or feature.derived or feature.template or feature.window):
        raise InvalidInputError(
            f"feature {feature.name!r} has no history, because it is computed at every read; "
            "declare it with log=True to keep the values that are served from now on, or with "
            "derived=True if it depends on nothing but the features that it reads"
        )


async def events_behind(
    offline: OfflineStore, rows: Sequence[CausedRow], event_types: Collection[str]
) -> list[CauseEvent | None]:
    """Return the event that caused each row of history, or None if the log does not have it.

    A value is as of the timestamp of its event, so the index of the log on types and timestamps
    finds the event. Of several entities with the same event id, that of the row comes first: a
    handler may also write values of another entity.
    """
    caused = [written for written in rows if written.row.cause not in NOT_EVENTS]
    if not caused or not event_types:
        return [None] * len(rows)
    moments = sorted({written.row.as_of.astimezone(UTC) for written in caused})
    timestamps = ", ".join(f"TIMESTAMPTZ {text(moment.isoformat())}" for moment in moments)
    answer = await offline.query(
        'SELECT entity_id, event_id, event_type, "timestamp", received_at FROM events '
        f"WHERE event_type IN ({texts(sorted(event_types))}) "
        f'AND "timestamp" IN ({timestamps}) '
        f"AND event_id IN ({texts(sorted({written.row.cause for written in caused}))}) "
        f"ORDER BY entity_id IN ({texts(sorted({written.entity_id for written in caused}))}) DESC "
        f"LIMIT {2 * len(caused)}",
        {},
    )
    events: dict[tuple[str, datetime], dict[str, CauseEvent]] = {}
    for entity_id, *fields in answer.rows:
        event = CauseEvent(*fields)
        events.setdefault((event.event_id, event.timestamp), {})[entity_id] = event
    behind = (events.get((written.row.cause, written.row.as_of), {}) for written in rows)
    return [
        of_entity.get(written.entity_id) or next(iter(of_entity.values()), None)
        for written, of_entity in zip(rows, behind, strict=True)
    ]
