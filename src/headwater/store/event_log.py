"""Reading accepted events back from the log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import msgspec

from headwater.errors import InvalidInputError
from headwater.model.events import LoggedEvent
from headwater.model.values import INTERNAL, ServiceEvent
from headwater.ports import EventFilter, OfflineStore

FOLLOWED = timedelta(minutes=1)
"""How long after their arrival events are still shown to a reader that follows the log."""

# No event has a text with these, and not every database accepts one in a statement.
_IMPOSSIBLE = re.compile("[\0\ud800-\udfff]")
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


def check_limit(limit: int) -> None:
    """Raise InvalidInputError unless a limit of events is positive."""
    if limit < 1:
        raise InvalidInputError(f"limit is {limit}; it must be at least 1")


async def find_events(offline: OfflineStore, query: EventQuery) -> list[LoggedEvent]:
    """Return accepted events, the newest first."""
    check_limit(query.limit)
    if not _is_possible(query.event_id, query.event_type, query.entity_id):
        return []
    rows = await offline.query(sql_of(query), {})
    return [
        LoggedEvent(
            ServiceEvent(
                *(kind, entity_id, msgspec.json.decode(payload), at, event_id),
                traceparent or msgspec.UNSET,
            ),
            received_at,
        )
        for kind, entity_id, payload, at, event_id, received_at, traceparent in rows.rows
    ]


def followed(event_type: str | None, entity_id: str | None) -> EventFilter:
    """Return the filter of the events to follow."""
    if not _is_possible(event_type, entity_id):
        return _NO_EVENTS
    return EventFilter(event_type, entity_id)


def _is_possible(*texts: str | None) -> bool:
    return not any(text and _IMPOSSIBLE.search(text) for text in texts)


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
