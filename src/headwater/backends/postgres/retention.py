"""Removing old rows of history and events, and all values of a series.

Rows are deleted in portions, each in its own transaction. Months that are over are replaced by a
new first partition with the rows that stay, so that their other rows need not be deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import NamedTuple

from headwater.backends.postgres.history_sql import last_value, pages_of, partitions_of
from headwater.backends.postgres.partition_tables import merge_months
from headwater.backends.postgres.pool import Connection
from headwater.core.clock import to_micros
from headwater.core.logging import log
from headwater.ports import Pruned

ROWS_AT_ONCE = 20_000

_POLL_SECONDS = 0.1

_LOCK = "SELECT pg_try_advisory_lock(hashtext('headwater retention'), hashtext(current_schema()))"
_UNLOCK = "SELECT pg_advisory_unlock(hashtext('headwater retention'), hashtext(current_schema()))"

# The rows that are true at the moment, and known at the moment. Every later read that finds a row
# from before the moment finds one of these.
_KEEP_HISTORY = f"""
INSERT INTO _kept_history
SELECT DISTINCT last.seq
FROM (
    SELECT DISTINCT feature, entity_id, hashtextextended(entity_id, 0) AS hash,
           {{moment}} AS moment
    FROM _series WHERE {{pages}}
    ORDER BY hash
) AS requested
CROSS JOIN LATERAL (
    (SELECT seq FROM ({last_value("requested.feature", known=False)}) AS true_then)
    UNION ALL (SELECT seq FROM ({last_value("requested.feature", known=True)}) AS known_then)
) AS last
ON CONFLICT DO NOTHING
"""
_OLD_HISTORY = """
as_of < {moment} AND written_at < {moment}
AND NOT EXISTS (SELECT FROM _kept_history AS kept WHERE kept.seq = {table}.seq)
"""
_OLD_EVENTS = """
received_at < {moment} AND EXISTS (
    SELECT FROM _done_events AS done WHERE done.partition = {table}.partition
      AND (split_part(position, '-', 1)::numeric, split_part(position, '-', 2)::numeric)
          <= (done.major, done.minor)
)
"""
_DROP = """
DELETE FROM {table} WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM {table} WHERE feature = $1 LIMIT {limit}
))
"""
_SERIES_OF = "entity = $1 AND left(entity_id, 128) = left($2, 128) AND entity_id = $2"
_FEATURES = f"SELECT DISTINCT feature FROM _series WHERE {_SERIES_OF}"
_VALUES_OF = """
feature = ANY ($3) AND hashtextextended(entity_id, 0) = hashtextextended($2 COLLATE "C", 0)
AND entity = $1 AND entity_id = $2
"""
_EVENTS_OF = "entity_id = $1 AND event_type <> ALL ($2)"


class _Removal(NamedTuple):
    """The rows to remove from a log: a condition, which is true of no row that is added later."""

    log: str
    before: datetime
    condition: str
    late: str | None
    """Which rows may have been added later; None if they cannot be found quickly."""

    def of(self, table: str) -> str:
        return self.condition.format(table=table, moment=_literal(self.before))


async def prune_history(
    connection: Connection, before: datetime, *, last: int, dry_run: bool
) -> int:
    """Remove the rows that no read at or after a moment finds; return their number.

    ``last`` is a number that no later row can have.
    """
    columns = "_kept_history (seq bigint PRIMARY KEY)"
    async with _alone(connection), _temporary(connection, columns):
        for pages in await pages_of(connection, "_series"):
            keep = _KEEP_HISTORY.format(moment=_literal(before), pages=pages)
            await connection.execute(keep)
        await connection.execute("ANALYZE _kept_history")
        condition = f"{_OLD_HISTORY} AND seq <= {last}"
        removal = _Removal("_history", before, condition, f"seq > {last}")
        return await _remove(connection, removal, dry_run=dry_run)


async def prune_events(
    connection: Connection, before: datetime, *, done: Sequence[str], dry_run: bool
) -> int:
    """Remove the events from before a moment; return their number.

    ``done`` is, by partition, the position of the last event that may be removed ("" for none).
    """
    positions = [
        (partition, *map(int, position.split("-")))
        for partition, position in enumerate(done)
        if position
    ]
    columns = "_done_events (partition integer PRIMARY KEY, major numeric, minor numeric)"
    async with _alone(connection), _temporary(connection, columns):
        await connection.executemany("INSERT INTO _done_events VALUES ($1, $2, $3)", positions)
        removal = _Removal("_events", before, _OLD_EVENTS, None)
        return await _remove(connection, removal, dry_run=dry_run)


async def drop_series(connection: Connection, series: str) -> int:
    """Remove all values of a series; return their number."""
    count = 0
    # Months that are being merged would get the rows back that were copied before.
    async with _alone(connection):
        for table in await partitions_of(connection, "_history"):
            sql = _DROP.format(table=table, limit=ROWS_AT_ONCE)
            while removed := _count(await connection.execute(sql, series)):
                count += removed
        for pages in await pages_of(connection, "_series"):
            await connection.execute(f"DELETE FROM _series WHERE {pages} AND feature = $1", series)
    return count


async def forget_entity(
    connection: Connection, entity: str, entity_id: str, *, keep: Collection[str], dry_run: bool
) -> Pruned:
    """Remove the past values of an entity, and the events with its id except some types."""
    # Months that are being merged would get the rows back that were copied before.
    async with _alone(connection):
        features = [row["feature"] for row in await connection.fetch(_FEATURES, entity, entity_id)]
        history = events = 0
        for table in await partitions_of(connection, "_events"):
            for pages in await pages_of(connection, table):
                condition = f"{pages} AND {_EVENTS_OF}"
                events += await _remove_rows(
                    connection, table, condition, entity_id, list(keep), dry_run=dry_run
                )
        # Last: if this is interrupted, history tells to whom the entity belonged.
        async with connection.transaction():
            for table in await partitions_of(connection, "_history"):
                history += await _remove_rows(
                    connection, table, _VALUES_OF, entity, entity_id, features, dry_run=dry_run
                )
            if not dry_run:
                removed = f"DELETE FROM _series WHERE {_SERIES_OF}"
                await connection.execute(removed, entity, entity_id)
    return Pruned(history=history, events=events)


async def _remove_rows(
    connection: Connection, table: str, condition: str, *arguments: object, dry_run: bool
) -> int:
    if dry_run:
        sql = f"SELECT count(*) FROM {table} WHERE {condition}"
        return int(await connection.fetchval(sql, *arguments))
    return _count(await connection.execute(f"DELETE FROM {table} WHERE {condition}", *arguments))


@asynccontextmanager
async def _alone(connection: Connection) -> AsyncIterator[None]:
    """Hold a lock that one process has at a time; it ends with the connection too."""
    # A statement that waits for it would exceed the timeout.
    while not await connection.fetchval(_LOCK):  # noqa: ASYNC110 - another process has it
        await asyncio.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        if not connection.is_closed():
            await connection.execute(_UNLOCK)


@asynccontextmanager
async def _temporary(connection: Connection, columns: str) -> AsyncIterator[None]:
    await connection.execute(f"CREATE TEMPORARY TABLE {columns}")
    try:
        yield
    finally:
        if not connection.is_closed():
            await connection.execute(f"DROP TABLE {columns.split()[0]}")


async def _remove(connection: Connection, removal: _Removal, *, dry_run: bool) -> int:
    counts = {
        table: await _count_rows(connection, table, removal.of(table))
        for table in await partitions_of(connection, removal.log)
    }
    if dry_run or not any(counts.values()):
        return sum(counts.values())
    merged = await merge_months(connection, removal.log, removal.before, removal.of, removal.late)
    for table, count in counts.items():
        if count and table not in merged:
            for pages in await pages_of(connection, table):
                await connection.execute(
                    f"DELETE FROM {table} WHERE {pages} AND {removal.of(table)}"
                )
    log.debug("rows pruned", table=removal.log, rows=sum(counts.values()), partitions=len(merged))
    return sum(counts.values())


async def _count_rows(connection: Connection, table: str, condition: str) -> int:
    count = 0
    for pages in await pages_of(connection, table):
        sql = f"SELECT count(*) FROM {table} WHERE {pages} AND {condition}"
        count += await connection.fetchval(sql)
    return count


def _count(status: str) -> int:
    """Return the number of rows in the status of a command, such as ``DELETE 3``."""
    return int(status.rpartition(" ")[2])


def _literal(moment: datetime) -> str:
    return f"_moment({to_micros(moment)})"
