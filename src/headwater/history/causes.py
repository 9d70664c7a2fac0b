"""The events behind values of history."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from headwater.core.sql_literals import text, texts
from headwater.ports import HistoryRow, OfflineStore

MOST_CAUSES = 1_000

NOT_EVENTS = frozenset({"set", "computed", "served"})
"""The causes of values that are not the ids of events."""


class CauseEvent(msgspec.Struct, frozen=True):
    """The event that caused a value."""

    event_id: str
    event_type: str
    timestamp: datetime
    received_at: datetime


async def events_behind(
    offline: OfflineStore, rows: Sequence[HistoryRow], event_types: Collection[str]
) -> dict[str, CauseEvent]:
    """Return the events that caused rows of history, by event id, as far as the log has them.

    A value is as of the timestamp of its event, so the index of the log on types and timestamps
    finds the event.
    """
    rows = [row for row in rows if row.cause not in NOT_EVENTS]
    if not rows or not event_types:
        return {}
    found = await offline.query(
        'SELECT event_id, event_type, "timestamp", received_at FROM events '
        f"WHERE event_type IN ({texts(sorted(event_types))}) "
        f'AND "timestamp" IN ({_moments(row.as_of for row in rows)}) '
        f"AND event_id IN ({texts(sorted({row.cause for row in rows}))})",
        {},
    )
    return {each[0]: CauseEvent(*each) for each in found.rows}


def _moments(moments: Iterable[datetime]) -> str:
    distinct = sorted({moment.astimezone(UTC) for moment in moments})
    return ", ".join(f"TIMESTAMPTZ {text(moment.isoformat())}" for moment in distinct)
