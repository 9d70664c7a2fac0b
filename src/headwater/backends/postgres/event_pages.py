"""Pages of the event log in the order of arrival, for readers that follow it.

A position is the time of arrival in milliseconds, the partition and the number within the
millisecond, as in the id of a stream entry. Pages end before the time up to which all events are
known to have been copied, so none arrives later before a position.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import NamedTuple

import asyncpg
import msgspec

from headwater.backends.postgres.pool import Connection
from headwater.core.clock import MICROSECOND
from headwater.errors import InvalidInputError
from headwater.model.events import EventPage, FollowedEvent, LoggedEvent
from headwater.model.values import INTERNAL, ServiceEvent
from headwater.ports import MOST_SKIPPED, EventFilter

_MILLISECOND = 1_000
_AFTER_ALL_PARTITIONS = 1 << 20
_POSITION = re.compile(r"(\d{1,15})-(\d{1,7})-(\d{1,18})")
_MAX_BYTES = 1 << 20

_MATCHING = f"""
FROM _events
WHERE received_at >= _moment($1) AND received_at < _moment($2)
  AND ($3::text IS NULL OR event_type = $3) AND ($4::text IS NULL OR entity_id = $4)
  AND NOT starts_with(event_type, '{INTERNAL}')
"""
_COUNT = f"SELECT count(*) FROM (SELECT {_MATCHING} LIMIT {MOST_SKIPPED}) AS skipped"
# The sum is that of the rows before, so there is always a first one.
_PAGE = f"""
WITH next AS (
    SELECT (extract(epoch FROM received_at) * 1000)::bigint AS ms, partition,
           split_part(position, '-', 2)::bigint AS n, received_at, event_type, entity_id,
           payload::text AS payload, "timestamp", event_id, traceparent
    {_MATCHING}
      AND (received_at, partition, split_part(position, '-', 2)::bigint) > (_moment($1), $5, $6)
    ORDER BY received_at, partition, n LIMIT $7
)
SELECT ms, partition, n, received_at, event_type, entity_id, payload, "timestamp", event_id,
       traceparent, found
FROM (
    SELECT *, count(*) OVER () AS found, sum(octet_length(payload)) OVER (
        ORDER BY received_at, partition, n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS bytes
    FROM next
) AS measured
WHERE coalesce(bytes, 0) < {_MAX_BYTES}
ORDER BY received_at, partition, n
"""


class ArrivalPosition(NamedTuple):
    """A place in the order of arrival, after an event or before a millisecond."""

    ms: int
    partition: int
    n: int

    @classmethod
    def before(cls, ms: int) -> ArrivalPosition:
        return cls(ms - 1, _AFTER_ALL_PARTITIONS, 0)

    @classmethod
    def end(cls, complete_until: int) -> ArrivalPosition:
        """Return the end of the events that arrived before a time in microseconds."""
        return cls.before(complete_until // _MILLISECOND)

    @classmethod
    def parse(cls, text: str) -> ArrivalPosition:
        match = _POSITION.fullmatch(text)
        if match is None:
            raise InvalidInputError(
                f"{text[:60]!r} is not a position of this event log; pass one that it returned, or "
                "none to start at the end"
            )
        return cls(*map(int, match.groups()))

    def __str__(self) -> str:
        return f"{self.ms}-{self.partition}-{self.n}"


async def read_events(
    connection: Connection,
    position: ArrivalPosition,
    only: EventFilter,
    *,
    complete_until: int,
    within: timedelta,
    limit: int,
) -> EventPage:
    """Return the events between a position and a time in microseconds, the latest ones only."""
    end = ArrivalPosition.end(complete_until)
    oldest = ArrivalPosition.end(complete_until - within // MICROSECOND)
    skipped = 0
    if position < oldest:
        bounds = ((position.ms + 1) * _MILLISECOND, (oldest.ms + 1) * _MILLISECOND)
        skipped = await connection.fetchval(_COUNT, *bounds, only.event_type, only.entity_id)
        position = oldest
    rows = await connection.fetch(
        _PAGE,
        *(position.ms * _MILLISECOND, (end.ms + 1) * _MILLISECOND),
        *(only.event_type, only.entity_id),
        *(position.partition, position.n, limit),
    )
    events = [_followed(row) for row in rows]
    fetched = rows[0]["found"] if rows else 0
    has_more = fetched == limit or len(rows) < fetched
    # The time of the outbox may be that of another server than before.
    last = events[-1].position if has_more else str(max(position, end))
    return EventPage(events, last, has_more, skipped)


def _followed(row: asyncpg.Record) -> FollowedEvent:
    event = ServiceEvent(
        *(row["event_type"], row["entity_id"], msgspec.json.decode(row["payload"])),
        *(row["timestamp"], row["event_id"], row["traceparent"] or msgspec.UNSET),
    )
    position = ArrivalPosition(row["ms"], row["partition"], row["n"])
    return FollowedEvent(LoggedEvent(event, row["received_at"]), str(position))
