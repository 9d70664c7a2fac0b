"""Removing old rows of history and events, and all values of a series.

Rows are deleted in portions, each in its own transaction. Months that are over are replaced by a
new first partition with the rows that stay, which are found by index, so that their other rows are
counted and neither deleted nor compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import NamedTuple

from headwater.backends.postgres.connections import Connection, another, is_pooled
from headwater.backends.postgres.history_sql import last_value, pages_of, partitions_of
from headwater.backends.postgres.partition_tables import (
    HISTORY_COLUMNS,
    StayingRows,
    merge_months,
    tables_before,
)
from headwater.core.clock import to_micros
from headwater.core.logging import log
from headwater.ports import Pruned

ROWS_AT_ONCE = 20_000

_POLL_SECONDS = 0.1
_TEMPORARY = ("_kept_history", "_done_events")

_LOCK = "SELECT pg_try_advisory_lock(hashtext('headwater retention'), hashtext(current_schema()))"
_UNLOCK = "SELECT pg_advisory_unlock(hashtext('headwater retention'), hashtext(current_schema()))"

# The rows that are true at the moment, and known at the moment. Every later read that finds a row
# from before the moment finds one of these.
_KEEP_HISTORY = f"""
INSERT INTO _kept_history
SELECT {", ".join(f"last.{column}" for column in HISTORY_COLUMNS.split(", "))}
FROM (
    SELECT DISTINCT feature AS wanted, entity_id, hashtextextended(entity_id, 0) AS hash,
           {{moment}} AS moment
    FROM _series WHERE {{pages}}
    ORDER BY hash
) AS requested
CROSS JOIN LATERAL (
    (SELECT * FROM ({last_value("requested.wanted", known=False, columns="h.*")}) AS true_then)
    UNION ALL
    (SELECT * FROM ({last_value("requested.wanted", known=True, columns="h.*")}) AS known_then)
) AS last
WHERE {{old}}
ON CONFLICT DO NOTHING
"""
_OLD_HISTORY = "as_of < {moment} AND written_at < {moment} AND seq <= {last}"
_IS_KEPT = "EXISTS (SELECT FROM _kept_history AS kept WHERE kept.seq = {table}.seq)"
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
    """The rows to remove from a log: those that are old and not kept."""

    log: str
    before: datetime
    old: str
    """A condition, which is true of no row that is added later."""
    kept: str | None
    """A table with the rows that are old and stay; None if there are none."""
    late: str | None
    """Which rows may have been added later; None if they cannot be found quickly."""

    def old_of(self, table: str) -> str:
        return self.old.format(table=table, moment=_literal(self.before))

    def removed_of(self, table: str) -> str:
        kept = "false" if self.kept is None else _IS_KEPT.format(table=table)
        return f"{self.old_of(table)} AND NOT {kept}"


async def prune_history(
    connection: Connection, before: datetime, *, last: int, dry_run: bool
) -> int:
    """Remove the rows that no read at or after a moment finds; return their number.

    ``last`` is a number that no later row can have.
    """
    rows = f"_kept_history AS SELECT {HISTORY_COLUMNS} FROM _history LIMIT 0"
    old = _OLD_HISTORY.format(moment="{moment}", last=last)
    removal = _Removal("_history", before, old, "_kept_history", f"seq > {last}")
    async with _alone(connection), _temporary(connection, rows):
        await connection.execute("ALTER TABLE _kept_history ADD PRIMARY KEY (seq)")
        for pages in await pages_of(connection, "_series"):
            moment = _literal(before)
            keep = _KEEP_HISTORY.format(moment=moment, pages=pages, old=removal.old_of("last"))
            await connection.execute(keep)
        await connection.execute("ANALYZE _kept_history")
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
        removal = _Removal("_events", before, _OLD_EVENTS, None, None)
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
        history = 0
        events = await forget_events(connection, entity_id, keep=keep, dry_run=dry_run)
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


async def forget_events(
    connection: Connection, entity_id: str, *, keep: Collection[str], dry_run: bool
) -> int:
    """Remove the events with an id except some types; return their number."""
    events = 0
    for table in await partitions_of(connection, "_events"):
        for pages in await pages_of(connection, table):
            condition = f"{pages} AND {_EVENTS_OF}"
            events += await _remove_rows(
                connection, table, condition, entity_id, list(keep), dry_run=dry_run
            )
    return events


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
    if is_pooled(connection):
        async with another(connection) as holder, _locked_by_transaction(holder):
            # Of a process that was killed.
            schema = await connection.fetchval("SELECT quote_ident(current_schema())")
            for table in _TEMPORARY:
                await connection.execute(f"DROP TABLE IF EXISTS {schema}.{table}")
            yield
        return
    # A statement that waits for it would exceed the timeout.
    while not await connection.fetchval(_LOCK):  # noqa: ASYNC110 - another process has it
        await asyncio.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        if not connection.is_closed():
            await connection.execute(_UNLOCK)


@asynccontextmanager
async def _locked_by_transaction(holder: Connection) -> AsyncIterator[None]:
    while True:
        async with holder.transaction():
            if await holder.fetchval(_LOCK.replace("_lock", "_xact_lock")):
                await holder.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
                yield
                return
        await asyncio.sleep(_POLL_SECONDS)


@asynccontextmanager
async def _temporary(connection: Connection, definition: str) -> AsyncIterator[None]:
    """Have a table for a block that commits several times."""
    # A temporary one belongs to a session.
    kind = "UNLOGGED" if is_pooled(connection) else "TEMPORARY"
    await connection.execute(f"CREATE {kind} TABLE {definition}")
    try:
        yield
    finally:
        if not connection.is_closed():
            await connection.execute(f"DROP TABLE {definition.split()[0]}")


async def _remove(connection: Connection, removal: _Removal, *, dry_run: bool) -> int:
    counts = {
        table: await _count_rows(connection, table, removal.old_of(table))
        for table in await tables_before(connection, removal.log, removal.before)
    }
    count = sum(counted.old for counted in counts.values())
    if removal.kept is not None:
        count -= await connection.fetchval(f"SELECT count(*) FROM {removal.kept}")
    if dry_run or not count:
        return count

    async def staying(table: str) -> list[str]:
        # Without a condition for late rows, they can be on any page.
        pages = await pages_of(connection, table) if removal.late is None else counts[table].others
        is_other = f"NOT ({removal.late or 'false'} OR {removal.old_of(table)})"
        return [f"{portion} AND {is_other}" for portion in pages]

    merged = await merge_months(
        connection,
        removal.log,
        removal.before,
        StayingRows(removal.kept, staying),
        removal.late,
    )
    for table, counted in counts.items():
        if counted.old and table not in merged:
            for pages in await pages_of(connection, table):
                await connection.execute(
                    f"DELETE FROM {table} WHERE {pages} AND {removal.removed_of(table)}"
                )
    log.debug("rows pruned", table=removal.log, rows=count, partitions=len(merged))
    return count


class _Counted(NamedTuple):
    """The number of old rows of a table, and the pages that have others too."""

    old: int
    others: Sequence[str]


async def _count_rows(connection: Connection, table: str, condition: str) -> _Counted:
    count, others = 0, list[str]()
    for pages in await pages_of(connection, table):
        sql = f"SELECT count(*) FROM {table} WHERE {pages}"
        old = await connection.fetchval(f"{sql} AND {condition}")
        count += old
        if old < await connection.fetchval(sql):
            others.append(pages)
    return _Counted(count, others)


def _count(status: str) -> int:
    """Return the number of rows in the status of a command, such as ``DELETE 3``."""
    return int(status.rpartition(" ")[2])


def _literal(moment: datetime) -> str:
    return f"_moment({to_micros(moment)})"
