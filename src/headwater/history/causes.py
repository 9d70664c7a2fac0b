"""The events behind values of history."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from headwater.core.sql_literals import text, texts
from headwater.model.features import CauseEvent
from headwater.ports import HistoryRow, OfflineStore

MOST_CAUSES = 1_000

NOT_EVENTS = frozenset({"set", "computed", "served"})
"""The causes of values that are not the ids of events."""


class CausedRow(NamedTuple):
    """A row of history and its entity."""

    entity_id: str
    row: HistoryRow


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
