"""History and event log in Postgres."""

from __future__ import annotations

import math
import re
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

import asyncpg
import msgspec
from asyncpg.prepared_stmt import PreparedStatement

from headwater.backends.observed import count_erased
from headwater.backends.postgres.connections import Connection, reading
from headwater.backends.postgres.erasures import PostgresErasures
from headwater.backends.postgres.errors import headline
from headwater.backends.postgres.exports import export_events, export_history
from headwater.backends.postgres.frames import read_frame
from headwater.backends.postgres.history_sql import (
    INSERT_INCOMING,
    LOCK_IMPORTS,
    LOCK_PARTITIONS,
    last_value,
    settled_number,
)
from headwater.backends.postgres.outbox_consumer import OutboxConsumer
from headwater.backends.postgres.partition_tables import (
    MONTHS_AHEAD,
    Month,
    extend_if_free,
    month_of,
)
from headwater.backends.postgres.pool import Postgres
from headwater.backends.postgres.replicas import ReplicaReads
from headwater.backends.postgres.retention import (
    drop_series,
    forget_entity,
    prune_events,
    prune_history,
)
from headwater.backends.postgres.series_rows import write_series
from headwater.core.batching import batched
from headwater.core.clock import MICROSECOND, Clock, to_micros
from headwater.core.sql_sources import HAS_PARAMETERS, NO_ROWS, SEVERAL_STATEMENTS, mentioned, shown
from headwater.errors import ConfigError, InvalidInputError, QueryError
from headwater.model.events import EventPage, FollowedEvent, LoggedEvent
from headwater.model.values import INTERNAL, ServiceEvent
from headwater.ports import (
    MOST_SKIPPED,
    Change,
    EventFilter,
    FrameQuery,
    HistoryRow,
    PastEvent,
    PastValue,
    Point,
    Pruned,
    Rows,
    SeriesFile,
    SeriesQuery,
    history_rows,
)
from headwater.settings.servers import PostgresSettings

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
SELECT n, value, as_of, written_at, cause
FROM unnest($2::text[]) WITH ORDINALITY AS ids (id, n), LATERAL (
    SELECT value, as_of, written_at, cause, seq FROM _history
    WHERE feature = $1
      AND hashtextextended(entity_id, 0) = hashtextextended(id, 0) AND entity_id = id
      AND as_of >= coalesce(_moment($3), '-infinity') AND as_of < coalesce(_moment($4), 'infinity')
    ORDER BY as_of DESC, written_at DESC, seq DESC LIMIT $5
) AS newest ORDER BY n, as_of DESC, written_at DESC, seq DESC
"""
EVENTS_OF = """
WITH caused AS (
    SELECT h.entity_id, h.cause, min(h.written_at) AS first
    FROM unnest($1::text[]) AS id JOIN _history AS h
      ON h.feature = ANY($3::text[])
     AND hashtextextended(h.entity_id, 0) = hashtextextended(id, 0) AND h.entity_id = id
    GROUP BY h.entity_id, h.cause
)
SELECT e.entity_id, position, event_type, payload::text AS payload, "timestamp", event_id,
       received_at, first
FROM _events AS e LEFT JOIN caused ON caused.entity_id = e.entity_id AND cause = event_id
WHERE event_type = ANY($2::text[]) AND e.entity_id = ANY($1::text[])
ORDER BY split_part(position, '-', 1)::numeric, split_part(position, '-', 2)::numeric, partition
"""
# Keeps one statement far below its timeout.
VALUES_AT_ONCE = 50_000
# The classes of Postgres's error codes that concern the statement: unsupported, cardinality,
# data, transaction state, routines, access and names, check options, limits, raised by PL/pgSQL.
_QUERY_ERRORS = frozenset({"0A", "21", "22", "25", "2F", "38", "39", "42", "44", "54", "P0"})
_EXISTS = (
    "SELECT coalesce(to_regclass(format('%I', lower($1::text))),"
    " to_regclass(format('%I', $1::text))) IS NOT NULL"
)
_IS_IN_LAKE = "SELECT EXISTS (SELECT FROM _lake WHERE trimmed <> '')"
_CHECK_SECONDS = 5.0
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


class PostgresOfflineStore:
    """History that copies committed rows from the outbox before every read."""

    def __init__(
        self,
        postgres: Postgres,
        long_reads: ReplicaReads,
        consumer: OutboxConsumer,
        erasures: PostgresErasures,
        clock: Clock,
        settings: PostgresSettings,
        *,
        has_lake: bool = False,
    ) -> None:
        self._has_lake = has_lake
        self._checked_until = -math.inf
        self._postgres = postgres
        self._long_reads = long_reads
        self._consumer = consumer
        self._erasures = erasures
        self._clock = clock
        self._settings = settings
        self._extended: Month | None = None

    async def _catch_up(self) -> None:
        """Copy what waits in the outbox; raise ConfigError if rows are in a lake alone.

        Rows are deleted long after that was noted, so it need not be asked for at every read.
        """
        await self._consumer.catch_up()
        if self._has_lake or time.monotonic() < self._checked_until:
            return
        if await self._postgres.run(lambda connection: connection.fetchval(_IS_IN_LAKE)):
            raise ConfigError(
                "this store has its history in a lake; set lake.url to that lake, as in the other "
                "processes of the store"
            )
        self._checked_until = time.monotonic() + _CHECK_SECONDS

    async def append(self, changes: Sequence[Change]) -> int:
        # Rows committed before the import get lower sequence numbers.
        await self._catch_up()
        added = 0
        for portion in batched(changes, CHANGES_AT_ONCE):
            added += await self._postgres.run(
                partial(add_changes, changes=portion, erasures=self._erasures)
            )
        return added

    async def as_of(
        self, features: Sequence[str], points: Sequence[Point], *, known: bool = False
    ) -> list[list[PastValue | None]]:
        if not features or not points:
            return [[None] * len(features) for _ in points]
        await self._catch_up()

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
        await self._catch_up()
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
        entity_ids: Sequence[str],
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        limit: int,
    ) -> list[list[HistoryRow]]:
        await self._catch_up()
        bounds = [None if moment is None else to_micros(moment) for moment in (start, end)]
        rows = await self._postgres.run(
            lambda connection: connection.fetch(ROWS, series, list(entity_ids), *bounds, limit)
        )
        found: list[list[HistoryRow]] = [[] for _ in entity_ids]
        for n, value, as_of, written_at, cause in rows:
            found[n - 1].append(HistoryRow(value.encode(), as_of, written_at, cause))
        return found

    async def export_history(self, file: Path, *, after: int) -> int:
        await self._catch_up()
        return await export_history(self._postgres, self._long_reads, file, after)

    async def export_events(
        self,
        folder: Path,
        event_types: Collection[str],
        upto: Mapping[int, str],
        *,
        since: datetime | None = None,
        files: int,
    ) -> list[Path]:
        await self._catch_up()
        return await export_events(
            self._long_reads, folder, event_types, upto, since=since, files=files
        )

    async def events_after(
        self, position: str | None, only: EventFilter, *, within: timedelta, limit: int
    ) -> EventPage:
        after = None if position is None else ArrivalPosition.parse(position)
        await self._catch_up()
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

    async def events_of(
        self, entity_ids: Sequence[str], event_types: Collection[str], series: Collection[str]
    ) -> list[list[PastEvent]]:
        await self._catch_up()
        chosen = (list(dict.fromkeys(entity_ids)), list(event_types), list(series))
        rows = await self._postgres.run(lambda connection: connection.fetch(EVENTS_OF, *chosen))
        found: dict[str, list[PastEvent]] = {entity_id: [] for entity_id in entity_ids}
        for entity_id, position, event_type, payload, timestamp, event_id, received, first in rows:
            event = ServiceEvent(
                event_type, entity_id, msgspec.json.decode(payload), timestamp, event_id
            )
            found[entity_id].append(
                PastEvent(
                    position,
                    event,
                    received_at=to_micros(received),
                    written_at=None if first is None else to_micros(first),
                )
            )
        return [found[entity_id] for entity_id in entity_ids]

    async def prune(
        self, *, history: datetime | None, events: datetime | None, dry_run: bool = False
    ) -> Pruned:
        await self._catch_up()
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
        return Pruned(pruned["history"], pruned["events"])

    async def drop(self, series: str) -> int:
        await self._catch_up()
        return await self._postgres.run(partial(drop_series, series=series))

    async def forget(
        self, entity: str, entity_id: str, *, keep: Collection[str] = (), dry_run: bool = False
    ) -> Pruned:
        await self._catch_up()
        return await self._postgres.run(
            lambda connection: forget_entity(
                connection, entity, entity_id, keep=keep, dry_run=dry_run
            )
        )

    async def read_frame(
        self, query: FrameQuery, answer: Path, progress: Callable[[int], None] | None = None
    ) -> None:
        await self._catch_up()
        # Values that are not in history need a temporary table, which a replica cannot have.
        postgres = self._postgres if query.extra else self._long_reads
        await read_frame(postgres, query, answer, progress)

    async def write_series(self, query: SeriesQuery, folder: Path) -> list[SeriesFile]:
        await self._catch_up()
        return await write_series(self._long_reads, query, folder)

    async def query(self, sql: str, sources: Mapping[str, str]) -> Rows:
        await self._catch_up()
        return await self._long_reads.run(lambda connection: run_query(connection, sql, sources))

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
                lambda connection: extend_if_free(
                    connection, self._settings.schema, now, self._settings.tables_per_month
                )
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


async def run_query(connection: Connection, sql: str, sources: Mapping[str, str]) -> Rows:
    """Run a query over views and tables of Postgres."""
    async with _reading(connection, sql, sources):
        statement, columns = await _prepare(connection, sql)
        return Rows(columns, [tuple(row) for row in await statement.fetch()])


async def prepare_query(
    connection: Connection, sql: str, sources: Mapping[str, str]
) -> Sequence[str]:
    """Check a query without running it; return the names of its columns."""
    async with _reading(connection, sql, sources):
        _, columns = await _prepare(connection, sql)
        return columns


@asynccontextmanager
async def _reading(
    connection: Connection, sql: str, sources: Mapping[str, str]
) -> AsyncIterator[None]:
    """Run a block in a read-only transaction, with errors that explain the query's problem."""
    if "\0" in sql:
        # It would end the statement, and Postgres would read the rest as a protocol message.
        raise QueryError("the query contains the character U+0000; remove it")
    try:
        async with reading(connection):
            yield
    except asyncpg.PostgresSyntaxError as error:
        # The function that counts the statements of a query; syntax is checked by the parser.
        if error.server_source_function == "exec_parse_message":
            raise QueryError(SEVERAL_STATEMENTS) from error
        raise QueryError(f"the query cannot be run: {headline(error)}") from error
    except asyncpg.UndefinedTableError as error:
        await _check_sources(connection, sql, sources)
        raise _invalid(error) from error
    except asyncpg.PostgresError as error:
        if error.sqlstate[:2] not in _QUERY_ERRORS:
            raise
        raise _invalid(error) from error


async def _prepare(connection: Connection, sql: str) -> tuple[PreparedStatement, list[str]]:
    statement = await connection.prepare(sql, name="")
    columns = [attribute.name for attribute in statement.get_attributes()]
    if not columns:
        raise QueryError(NO_ROWS)
    if statement.get_parameters():
        raise QueryError(HAS_PARAMETERS)
    return statement, columns


def _invalid(error: asyncpg.PostgresError) -> InvalidInputError:
    return InvalidInputError(f"the query cannot be run: {headline(error)}")


async def _check_sources(connection: Connection, sql: str, sources: Mapping[str, str]) -> None:
    for name in mentioned(sql, sources):
        if not await connection.fetchval(_EXISTS, name):
            raise InvalidInputError(
                f"source {name!r} is not a table or view in Postgres; run `headwater sources load "
                f"{name}`, which makes one from {shown(sources[name])}, or create it in the schema "
                "of Headwater or in public"
            )


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


# A statement with so many changes takes far less than its timeout.
CHANGES_AT_ONCE = 20_000

_STAGE = """
CREATE TEMPORARY TABLE _imported (
    n bigint, feature text COLLATE "C", entity text COLLATE "C", entity_id text COLLATE "C",
    kind text COLLATE "C", value text COLLATE "C", as_of bigint, written_at bigint,
    cause text COLLATE "C"
) ON COMMIT DROP
"""

_INSERT = f"""
WITH incoming AS MATERIALIZED (
    SELECT DISTINCT ON (g.feature, g.entity_id, g.as_of, g.cause, g.value)
           g.n, g.feature, g.entity, g.entity_id, g.kind, g.value::json AS value,
           _moment(g.as_of) AS as_of, _moment(g.written_at) AS written_at, g.cause
    FROM _imported AS g
    LEFT JOIN LATERAL (
        SELECT true AS known FROM _history AS h
        WHERE h.feature = g.feature
          AND hashtextextended(h.entity_id, 0) = hashtextextended(g.entity_id, 0)
          AND h.entity_id = g.entity_id AND h.as_of = _moment(g.as_of)
          AND h.cause = g.cause AND h.value::text = g.value
        LIMIT 1
    ) AS h ON true
    WHERE h.known IS NULL
    ORDER BY g.feature, g.entity_id, g.as_of, g.cause, g.value, g.n
),
{INSERT_INCOMING}
"""


async def add_changes(
    connection: Connection, changes: Sequence[Change], erasures: PostgresErasures
) -> int:
    """Add the changes that are not in history yet, all or none; return their number."""
    async with connection.transaction():
        await connection.execute(LOCK_IMPORTS)
        # After the lock, which an erasure needs as well.
        admitted = (await erasures.current(connection)).admitted(changes, lambda _: True)
        count_erased("value", admitted.dropped)
        await connection.execute(_STAGE)
        rows = enumerate(history_rows(admitted.changes, lambda value: bytes(value).decode()))
        await connection.copy_records_to_table(
            "_imported", records=((number, *row) for number, row in rows)
        )
        status = await connection.execute(_INSERT)  # such as INSERT 0 20000
        return int(status.split()[-1])
