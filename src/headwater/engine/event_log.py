"""The log of accepted events of an open store: find and follow them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from headwater.core.sql_literals import text
from headwater.errors import EventError, InvalidInputError
from headwater.features.call_scope import track_source, track_sources
from headwater.features.services import Services
from headwater.model.events import EventMisfits, EventPage, LoggedEvent
from headwater.model.values import INTERNAL, LONGEST_ID, ServiceEvent
from headwater.ports import EventFilter, is_storable

_FOLLOWED = timedelta(minutes=1)
"""How long after their arrival events are still shown to a reader that follows the log."""

_EXAMINED = 500
_MISFIT_REMEDY = (
    "give a new field a default, or allow the type of the stored events too, such as float | str"
)

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
    oldest_first: bool = False


class EventLog:
    """The accepted events of a store; what it returns is noted in the provenance of a context."""

    def __init__(self, services: Services) -> None:
        self._offline = services.backends.offline
        self._registry = services.registry

    async def find(self, **query: Any) -> list[LoggedEvent]:
        """Return the events of an `EventQuery`, in its order."""
        asked = EventQuery(**query)
        _check_limit(asked.limit)
        if not _is_possible(asked.event_id, asked.event_type, asked.entity_id):
            return []
        rows = await self._offline.query(sql_of(asked), {})
        events = [
            LoggedEvent(
                ServiceEvent(
                    *(kind, entity_id, msgspec.json.decode(payload), at, event_id),
                    traceparent or msgspec.UNSET,
                ),
                received_at,
            )
            for kind, entity_id, payload, at, event_id, received_at, traceparent in rows.rows
        ]
        track_sources(self._registry.sources_of(logged.event for logged in events))
        return events

    async def misfits(self) -> list[EventMisfits]:
        """Return the declared types of which stored events do not fit the present class.

        The newest and the oldest events of each type are examined.
        """
        misfits = []
        for declared in self._registry.events.values():
            of_type = {"event_type": declared.name, "limit": _EXAMINED}
            logged = await self.find(**of_type) + await self.find(**of_type, oldest_first=True)
            events = {(each.event.entity_id, each.event.event_id): each.event for each in logged}
            errors = {}
            for event in events.values():
                try:
                    declared.typed(event, _MISFIT_REMEDY)
                except EventError as error:
                    errors[event.event_id] = error.problem
            if errors:
                first, problem = next(iter(errors.items()))
                misfits.append(
                    EventMisfits(
                        event_type=declared.name,
                        examined=len(events),
                        count=len(errors),
                        event_id=first,
                        problem=problem,
                    )
                )
        return misfits

    async def follow(
        self, position: str | None, event_type: str | None, entity_id: str | None, limit: int
    ) -> EventPage:
        """Return the next events after a position of the log."""
        _check_limit(limit)
        track_source("other", "the log of events")
        is_possible = _is_possible(event_type, entity_id)
        only = EventFilter(event_type, entity_id) if is_possible else _NO_EVENTS
        page = await self._offline.events_after(position, only, within=_FOLLOWED, limit=limit)
        track_sources(self._registry.sources_of(event.logged.event for event in page.events))
        return page


def _check_limit(limit: int) -> None:
    if limit < 1:
        raise InvalidInputError(f"limit is {limit}; it must be at least 1")


def _is_possible(*texts: str | None) -> bool:
    return all(text is None or is_storable(text, LONGEST_ID) for text in texts)


def sql_of(query: EventQuery) -> str:
    """Return the statement that finds events."""
    columns = {name: getattr(query, name) for name in ("event_id", "event_type", "entity_id")}
    conditions = [f"{name} = {text(value)}" for name, value in columns.items() if value is not None]
    for moment, comparison in ((query.since, ">="), (query.before, "<")):
        if moment is not None:
            literal = text(moment.astimezone(UTC).isoformat())
            conditions.append(f'"timestamp" {comparison} TIMESTAMPTZ {literal}')
    where = " AND ".join(conditions)
    direction = "ASC" if query.oldest_first else "DESC"
    order = ", ".join(f"{each} {direction}" for each in ('"timestamp"', "received_at", "event_id"))
    return (
        'SELECT event_type, entity_id, payload, "timestamp", event_id, received_at, traceparent '
        f"FROM events {where and 'WHERE '}{where} "
        f"ORDER BY {order} LIMIT {query.limit}"
    )
