"""The log of accepted events of an open store: find and follow them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from headwater.errors import InvalidInputError
from headwater.features.call_scope import track_source, track_sources
from headwater.features.services import Services
from headwater.model.events import EventPage, LoggedEvent
from headwater.model.values import INTERNAL, LONGEST_ID, ServiceEvent
from headwater.ports import EventFilter, is_storable

_FOLLOWED = timedelta(minutes=1)
"""How long after their arrival events are still shown to a reader that follows the log."""

# Internal events are never followed.
_NO_EVENTS = EventFilter(INTERNAL)


class EventQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The events to find: they must match all fields that are not None."""

    event_id: str | None = None
    event_type: str | None = None
    entity_id: str | None = None
    since: datetime | None = None
    before: datetime | None = None
    limit: int = 100


class EventLog:
    """The accepted events of a store; what it returns is noted in the provenance of a context."""

    def __init__(self, services: Services) -> None:
        self._offline = services.backends.offline
        self._registry = services.registry

    async def find(self, **query: Any) -> list[LoggedEvent]:
        """Return the events of an `EventQuery`, the newest first."""
        wanted = EventQuery(**query)
        _check_limit(wanted.limit)
        if not _is_possible(wanted.event_id, wanted.event_type, wanted.entity_id):
            return []
        rows = await self._offline.query(sql_of(wanted), {})
        found = [
            LoggedEvent(
                ServiceEvent(
                    *(kind, entity_id, msgspec.json.decode(payload), at, event_id),
                    traceparent or msgspec.UNSET,
                ),
                received_at,
            )
            for kind, entity_id, payload, at, event_id, received_at, traceparent in rows.rows
        ]
        self._track(each.event for each in found)
        return found

    async def follow(
        self, position: str | None, event_type: str | None, entity_id: str | None, limit: int
    ) -> EventPage:
        """Return the next events after a position of the log."""
        _check_limit(limit)
        track_source("other", "the log of events")
        is_possible = _is_possible(event_type, entity_id)
        only = EventFilter(event_type, entity_id) if is_possible else _NO_EVENTS
        page = await self._offline.events_after(position, only, within=_FOLLOWED, limit=limit)
        self._track(each.logged.event for each in page.events)
        return page

    def _track(self, events: Iterable[ServiceEvent]) -> None:
        track_sources(self._registry.sources_of(events))


def _check_limit(limit: int) -> None:
    if limit < 1:
        raise InvalidInputError(f"limit is {limit}; it must be at least 1")


def _is_possible(*texts: str | None) -> bool:
    return all(text is None or is_storable(text, LONGEST_ID) for text in texts)


def sql_of(query: EventQuery) -> str:
    """Return the statement that finds events."""
    where = " AND ".join(_conditions(query))
    return (
        'SELECT event_type, entity_id, payload, "timestamp", event_id, received_at, traceparent '
        f"FROM events {where and 'WHERE '}{where} "
        f'ORDER BY "timestamp" DESC, received_at DESC, event_id DESC LIMIT {query.limit}'
    )


def _conditions(query: EventQuery) -> Iterator[str]:
    for column in ("event_id", "event_type", "entity_id"):
        value = getattr(query, column)
        if value is not None:
            yield f"{column} = {_literal(value)}"
    for moment, comparison in ((query.since, ">="), (query.before, "<")):
        if moment is not None:
            text = _literal(moment.astimezone(UTC).isoformat())
            yield f'"timestamp" {comparison} TIMESTAMPTZ {text}'


def _literal(text: str) -> str:
    """Return a text as a literal of SQL; neither engine interprets a backslash in it."""
    return "'" + text.replace("'", "''") + "'"
