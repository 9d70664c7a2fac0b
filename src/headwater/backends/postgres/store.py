"""History and event log in Postgres."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from headwater.backends.postgres.bulk_import import CHANGES_AT_ONCE, add
from headwater.backends.postgres.erasures import PostgresErasures
from headwater.backends.postgres.event_pages import ArrivalPosition, read_events
from headwater.backends.postgres.exports import export_events, export_history
from headwater.backends.postgres.frames import read_frame
from headwater.backends.postgres.history_sql import LOCK_PARTITIONS, last_value
from headwater.backends.postgres.outbox_consumer import OutboxConsumer
from headwater.backends.postgres.partition_tables import (
    MONTHS_AHEAD,
    Month,
    extend_if_free,
    month_of,
)
from headwater.backends.postgres.pool import Connection, Postgres
from headwater.backends.postgres.retention import (
    drop_series,
    forget_entity,
    prune_events,
    prune_history,
)
from headwater.backends.postgres.sequence_numbers import settled_number
from headwater.backends.postgres.user_queries import prepare_query, run_query
from headwater.core.batching import batched
from headwater.core.clock import Clock, to_micros
from headwater.model.events import EventPage
from headwater.ports import (
    Change,
    EventFilter,
    FrameQuery,
    HistoryRow,
    PastValue,
    Point,
    Pruned,
    Rows,
)

# In the order of the index, so that each search starts near the end of the previous one.
_LAST = """
SELECT requested.n AS point, wanted.n AS place, last.value, last.as_of, last.written_at
FROM (
    SELECT entity_id, hashtextextended(entity_id, 0) AS hash, moment, n
    FROM unnest($1::text[], $2::timestamptz[]) WITH ORDINALITY AS points (entity_id, moment, n)
    ORDER BY hash, moment
) AS requested
CROSS JOIN unnest($3::text[]) WITH ORDINALITY AS wanted (feature, n)
CROSS JOIN LATERAL ({last}) AS last
"""
LAST_TRUE = _LAST.format(last=last_value("wanted.feature", known=False))
LAST_KNOWN = _LAST.format(last=last_value("wanted.feature", known=True))

# The index holds the beginning of the id, which sorts as the whole id does.
LATEST = """
WITH page AS (
    SELECT entity_id, array_agg(DISTINCT feature) AS features FROM _series
    WHERE entity = $1 AND left(entity_id, 128) >= left($2, 128) AND entity_id > $2
    GROUP BY left(entity_id, 128), entity_id
    ORDER BY left(entity_id, 128), entity_id LIMIT $3
)
SELECT page.entity_id, wanted.feature, last.value, last.as_of, last.written_at
FROM page
CROSS JOIN unnest(page.features) AS wanted (feature)
CROSS JOIN LATERAL (
    SELECT h.value, h.as_of, h.written_at FROM _history AS h
    WHERE h.feature = wanted.feature
      AND hashtextextended(h.entity_id, 0) = hashtextextended(page.entity_id, 0)
      AND h.entity_id = page.entity_id AND h.entity = $1
    ORDER BY h.as_of DESC, h.written_at DESC, h.seq DESC LIMIT 1
) AS last
ORDER BY page.entity_id
"""

ROWS = """
SELECT value, as_of, written_at, cause FROM _history
WHERE feature = $1
  AND hashtextextended(entity_id, 0) = hashtextextended($2, 0) AND entity_id = $2
  AND as_of >= coalesce(_moment($3), '-infinity') AND as_of < coalesce(_moment($4), 'infinity')
ORDER BY as_of DESC, written_at DESC, seq DESC LIMIT $5
"""

# Keeps one statement far below its timeout.
VALUES_AT_ONCE = 50_000


class PostgresOfflineStore:
    """History that copies committed rows from the outbox before every read."""

    def __init__(
        self,
        postgres: Postgres,
        consumer: OutboxConsumer,
        erasures: PostgresErasures,
        clock: Clock,
        schema: str,
    ) -> None:
        self._postgres = postgres
        self._consumer = consumer
        self._erasures = erasures
        self._clock = clock
        self._schema = schema
        self._extended: Month | None = None

    async def append(self, changes: Sequence[Change]) -> int:
        # Rows committed before the import get lower sequence numbers.
        await self._consumer.catch_up()
        added = 0
        for portion in batched(changes, CHANGES_AT_ONCE):
            added += await self._postgres.run(
                partial(add, changes=portion, current=self._erasures.current)
            )
        return added

    async def as_of(
        self, features: Sequence[str], points: Sequence[Point], *, known: bool = False
    ) -> list[list[PastValue | None]]:
        if not features or not points:
            return [[None] * len(features) for _ in points]
        await self._consumer.catch_up()

        async def select(connection: Connection) -> list[list[PastValue | None]]:
            size = max(1, VALUES_AT_ONCE // len(features))
            if len(points) <= size:
                return await _last(connection, features, points, known=known)
            grid: list[list[PastValue | None]] = []
            # One transaction, so that all values are of one snapshot.
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                await connection.execute(LOCK_PARTITIONS)
                for portion in batched(points, size):
                    grid += await _last(connection, features, portion, known=known)
            return grid

        return await self._postgres.run(select)

    async def latest(
        self, entity: str, *, after: str, limit: int
    ) -> list[tuple[str, dict[str, PastValue]]]:
        await self._consumer.catch_up()
        rows = await self._postgres.run(
            lambda connection: connection.fetch(LATEST, entity, after, limit)
        )
        values: dict[str, dict[str, PastValue]] = {}
        for entity_id, feature, value, as_of, written_at in rows:
            past = PastValue(value.encode(), as_of, written_at)
            values.setdefault(entity_id, {})[feature] = past
        return list(values.items())

    async def rows(
        self,
        series: str,
        entity_id: str,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        limit: int,
    ) -> list[HistoryRow]:
        await self._consumer.catch_up()
        bounds = [None if moment is None else to_micros(moment) for moment in (start, end)]
        rows = await self._postgres.run(
            lambda connection: connection.fetch(ROWS, series, entity_id, *bounds, limit)
        )
        return [
            HistoryRow(value.encode(), as_of, written_at, cause)
            for value, as_of, written_at, cause in rows
        ]

    async def export_history(self, file: Path, *, after: int) -> int:
        await self._consumer.catch_up()
        return await export_history(self._postgres, file, after)

    async def export_events(
        self,
        folder: Path,
        event_types: Collection[str],
        upto: Mapping[int, str],
        *,
        since: datetime | None = None,
        files: int,
    ) -> list[Path]:
        await self._consumer.catch_up()
        return await export_events(
            self._postgres, folder, event_types, upto, since=since, files=files
        )

    async def events_after(
        self, position: str | None, only: EventFilter, *, within: timedelta, limit: int
    ) -> EventPage:
        after = None if position is None else ArrivalPosition.parse(position)
        await self._consumer.catch_up()
        complete_until = self._consumer.complete_until
        if after is None:
            return EventPage([], str(ArrivalPosition.end(complete_until)))
        return await self._postgres.run(
            partial(
                read_events,
                position=after,
                only=only,
                complete_until=complete_until,
                within=within,
                limit=limit,
            )
        )

    async def prune(
        self, *, history: datetime | None, events: datetime | None, dry_run: bool = False
    ) -> Pruned:
        await self._consumer.catch_up()
        pruned = {"history": 0, "events": 0}
        if history is not None:
            last = await settled_number(self._postgres)
            pruned["history"] = await self._postgres.run(
                partial(prune_history, before=history, last=last, dry_run=dry_run)
            )
        if events is not None:
            done = await self._consumer.done_events()
            pruned["events"] = await self._postgres.run(
                partial(prune_events, before=events, done=done, dry_run=dry_run)
            )
        return Pruned(**pruned)

    async def drop(self, series: str) -> int:
        await self._consumer.catch_up()
        return await self._postgres.run(partial(drop_series, series=series))

    async def forget(
        self, entity: str, entity_id: str, *, keep: Collection[str] = (), dry_run: bool = False
    ) -> Pruned:
        await self._consumer.catch_up()
        return await self._postgres.run(
            lambda connection: forget_entity(
                connection, entity, entity_id, keep=keep, dry_run=dry_run
            )
        )

    async def read_frame(
        self, query: FrameQuery, answer: Path, progress: Callable[[int], None] | None = None
    ) -> None:
        await self._consumer.catch_up()
        await read_frame(self._postgres, query, answer, progress)

    async def query(self, sql: str, sources: Mapping[str, str]) -> Rows:
        await self._consumer.catch_up()
        return await self._postgres.run(lambda connection: run_query(connection, sql, sources))

    async def prepare(self, sql: str, sources: Mapping[str, str]) -> Sequence[str]:
        return await self._postgres.run(lambda connection: prepare_query(connection, sql, sources))

    async def maintain(self) -> None:
        await self._consumer.take_free()
        await self._extend()

    async def _extend(self) -> None:
        now = self._clock.now()
        month = month_of(now).later(MONTHS_AHEAD)
        if self._extended is None or self._extended < month:
            done = await self._postgres.run(
                lambda connection: extend_if_free(connection, self._schema, now)
            )
            self._extended = month if done else None


async def _last(
    connection: Connection, features: Sequence[str], points: Sequence[Point], *, known: bool
) -> list[list[PastValue | None]]:
    rows = await connection.fetch(
        LAST_KNOWN if known else LAST_TRUE,
        [point.entity_id for point in points],
        [point.at for point in points],
        features,
    )
    grid: list[list[PastValue | None]] = [[None] * len(features) for _ in points]
    for point, place, value, as_of, written_at in rows:
        grid[point - 1][place - 1] = PastValue(value.encode(), as_of, written_at)
    return grid
