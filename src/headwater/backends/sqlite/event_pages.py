"""Pages of the event log, for readers that follow it. A position is a sequence number."""

from __future__ import annotations

import re
import sqlite3
from typing import Any

import msgspec

from headwater.core.clock import from_micros
from headwater.errors import InvalidInputError
from headwater.model.events import EventPage, FollowedEvent, LoggedEvent
from headwater.model.values import INTERNAL, ServiceEvent
from headwater.ports import MOST_SKIPPED, EventFilter

_POSITION = re.compile(r"\d{1,18}")
_MAX_BYTES = 1 << 20

_FIRST = "SELECT min(seq) FROM events"
_END = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'events'"
# Numbers grow with the time of arrival, so this reads the newest events only.
_LAST_OLD = "SELECT seq FROM events WHERE seq > ? AND received_at < ? ORDER BY seq DESC LIMIT 1"
_MATCHING = f"""
FROM events
WHERE seq > ?1 AND seq <= ?2 AND only_feature IS NULL AND event_type NOT GLOB '{INTERNAL}*'
  AND (?3 IS NULL OR event_type = ?3) AND (?4 IS NULL OR entity_id = ?4)
"""
_COUNT = f"SELECT count(*) FROM (SELECT 1 {_MATCHING} LIMIT {MOST_SKIPPED})"
_PAGE = f"""
SELECT seq, event_type, entity_id, payload, timestamp, event_id, received_at, traceparent
{_MATCHING} ORDER BY seq LIMIT ?5
"""


def read_events(
    db: sqlite3.Connection, position: str | None, only: EventFilter, *, since: int, limit: int
) -> EventPage:
    """Return the events after a position that arrived since a time in microseconds."""
    ((end,),) = db.execute(_END).fetchall()
    if position is None:
        return EventPage([], str(end))
    if not _POSITION.fullmatch(position):
        raise InvalidInputError(
            f"{position[:60]!r} is not a position of this event log; pass one that it returned, or "
            "none to start at the end"
        )
    after, filters = int(position), (only.event_type, only.entity_id)
    moved = _moved(db, after, end)
    after, skipped = after + moved, min(moved, MOST_SKIPPED)
    if old := db.execute(_LAST_OLD, (after, since)).fetchone():
        ((count,),) = db.execute(_COUNT, (after, *old, *filters)).fetchall()
        skipped = min(skipped + count, MOST_SKIPPED)
        (after,) = old
    events: list[FollowedEvent] = []
    size = 0
    for row in db.execute(_PAGE, (after, end, *filters, limit)):
        events.append(_followed(row))
        size += len(row[3])
        if size >= _MAX_BYTES:
            break
    has_more = len(events) == limit or size >= _MAX_BYTES
    # A larger number is of a store that was deleted since.
    last = events[-1].position if has_more else str(end)
    return EventPage(events, last, has_more, skipped)


def _moved(db: sqlite3.Connection, after: int, end: int) -> int:
    """Return how many events after a position are not in the tail any more."""
    ((first,),) = db.execute(_FIRST).fetchall()
    return max(0, (end if first is None else first - 1) - after)


def _followed(row: tuple[Any, ...]) -> FollowedEvent:
    seq, event_type, entity_id, payload, at, event_id, received_at, traceparent = row
    event = ServiceEvent(
        *(event_type, entity_id, msgspec.json.decode(payload), from_micros(at), event_id),
        traceparent or msgspec.UNSET,
    )
    return FollowedEvent(LoggedEvent(event, from_micros(received_at)), str(seq))
