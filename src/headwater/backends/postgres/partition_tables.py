"""The monthly partitions of the large tables, created ahead of time.

The first partition holds everything before the months and the last one everything after them, so
no row is ever refused. The first month comes from the database's clock, the last one from the clock
of the process that adds it, limited to two years after the database's clock. A month may be several
tables, by the hash of the entity id, so that a search reads one of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import NamedTuple

import asyncpg

from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.history_sql import pages_of, partitions_of
from headwater.core.logging import log

MONTHS_AHEAD = 3
# The limit after the database's clock, for a process whose clock is wrong.
MAX_MONTHS_AHEAD = 24
# A waiting lock blocks new queries, so it must not wait long for a running one.
_LOCK_TIMEOUT = "2s"
_SET_LOCK_TIMEOUT = f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'"
# The lock that migrations use.
_TRY_LOCK = "SELECT pg_try_advisory_xact_lock(hashtext('headwater tables'), hashtext($1))"
_LOCK = "SELECT pg_advisory_xact_lock(hashtext('headwater tables'), hashtext(current_schema()))"
_MONTHS = r"""
SELECT relname FROM pg_inherits JOIN pg_class ON oid = inhrelid
WHERE inhparent = $1::regclass AND relname ~ '_\d{4}_\d\d$' ORDER BY 1
"""


# Between the name of a month and the number of one of its tables.
_PART = "_of_"


class _Table(NamedTuple):
    name: str
    column: str
    columns: str

    @property
    def early(self) -> str:
        """The first partition."""
        return f"{self.name}_early"

    def month(self, month: Month) -> str:
        return f"{self.name}_{month.name}"


HISTORY_COLUMNS = "seq, as_of, written_at, feature, entity, entity_id, kind, cause, value"
_TABLES = (
    _Table("_history", "as_of", HISTORY_COLUMNS),
    _Table(
        "_events",
        "received_at",
        'partition, received_at, "timestamp", position, event_type, entity_id, event_id, payload,'
        " traceparent",
    ),
)


def _table(name: str) -> _Table:
    return next(table for table in _TABLES if table.name == name)


class Month(NamedTuple):
    """A month of the calendar, in UTC."""

    year: int
    number: int

    def later(self, months: int) -> Month:
        years, number = divmod(self.number - 1 + months, 12)
        return Month(self.year + years, number + 1)

    @property
    def start(self) -> str:
        """The start of the month as an SQL literal."""
        return f"'{self.year:04}-{self.number:02}-01 00:00:00+00'"

    @property
    def name(self) -> str:
        return f"{self.year:04}_{self.number:02}"


def month_of(moment: datetime) -> Month:
    return Month(moment.year, moment.month)


async def extend(connection: Connection, now: datetime, parts: int) -> None:
    """Add the missing months, each of so many tables, in the caller's transaction."""
    span = await _span(connection, month_of(now))
    for table in _TABLES:
        await _extend(connection, table, span, parts)


async def extend_if_free(connection: Connection, schema: str, now: datetime, parts: int) -> bool:
    """Add the missing months in one transaction per table; return False if a lock prevents it."""
    span = await _span(connection, month_of(now))
    try:
        for table in _TABLES:
            async with connection.transaction():
                await connection.execute(_SET_LOCK_TIMEOUT)
                if not await connection.fetchval(_TRY_LOCK, schema):
                    return False
                await _extend(connection, table, span, parts)
    except asyncpg.LockNotAvailableError:
        log.debug("monthly partitions postponed")
        return False
    except asyncpg.InsufficientPrivilegeError as error:
        # Rows are stored in the last partition meanwhile.
        log.warning("no permission to create monthly partitions", reason=str(error))
    return True


async def tables_before(connection: Connection, name: str, moment: datetime) -> list[str]:
    """Return the tables that may have rows of times before a moment."""
    table = _table(name)
    months = await _months(connection, table)
    later = {table.month(month) for month in months if datetime(*month, 1, tzinfo=UTC) >= moment}
    tables = await partitions_of(connection, name)
    return [leaf for leaf in tables if leaf.partition(_PART)[0] not in later]


class StayingRows(NamedTuple):
    """The rows that stay when partitions are merged."""

    kept: str | None
    """A table with some of them."""
    others: Callable[[str], Awaitable[Sequence[str]]]
    """Returns, for a partition, conditions for the others, each of which meets one of them."""


async def merge_months(
    connection: Connection,
    name: str,
    before: datetime,
    rows: StayingRows,
    late: str | None,
) -> list[str]:
    """Replace the first partition and the months before a moment by a new one with these rows.

    Rows that meet ``late`` may be added meanwhile; if it is None, writers of these partitions
    wait. Returns the tables that were replaced: none if a lock prevents it.
    """
    table = _table(name)
    months = await _months_before(connection, table, before)
    if not months:
        return []
    replaced = [table.early, *map(table.month, months)]
    merge = Merge(connection, table, replaced, months[-1].later(1))
    try:
        async with AsyncExitStack() as stack:
            sources = await merge.sources()
            if late is None:
                await stack.enter_async_context(connection.transaction())
                await connection.execute(_SET_LOCK_TIMEOUT)
                await connection.execute(f"LOCK TABLE {', '.join(sources)} IN SHARE MODE")
            await merge.create()
            await merge.copy(rows, sources)
            async with connection.transaction():
                await merge.swap(late)
    except asyncpg.LockNotAvailableError:
        log.debug("merge of monthly partitions postponed", table=name)
    except asyncpg.InsufficientPrivilegeError as error:
        log.warning("no permission to merge monthly partitions", reason=str(error))
    else:
        return sources
    await merge.discard()
    return []


class Merge(NamedTuple):
    """A new first partition with the rows of some others."""

    connection: Connection
    table: _Table
    replaced: Sequence[str]
    end: Month

    @property
    def _new(self) -> str:
        return f"{self.table.name}_merged"

    async def sources(self) -> list[str]:
        """Return the tables with the rows of the partitions."""
        return [
            leaf for name in self.replaced for leaf in await partitions_of(self.connection, name)
        ]

    async def create(self) -> None:
        # With the constraint, the rows need not be checked again when the partition is attached.
        await self.connection.execute(
            f"DROP TABLE IF EXISTS {self._new};"
            f" CREATE TABLE {self._new} (LIKE {self.table.name} INCLUDING ALL,"
            f" CONSTRAINT _bound CHECK ({self.table.column} < {self.end.start}))"
        )

    async def copy(self, rows: StayingRows, sources: Sequence[str]) -> None:
        """Add the rows that stay."""
        if rows.kept is not None:
            is_here = f"{self.table.column} < {self.end.start}"
            for pages in await pages_of(self.connection, rows.kept):
                await self._insert(rows.kept, f"{pages} AND {is_here}")
        for source in sources:
            for condition in await rows.others(source):
                await self._insert(source, condition)
        await self.connection.execute(f"ANALYZE {self._new}")

    async def swap(self, late: str | None) -> None:
        name = self.table.name
        await self.connection.execute(_SET_LOCK_TIMEOUT)
        await self.connection.execute(_LOCK)
        await self.connection.execute(f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE")
        for partition in self.replaced:
            if late is not None:
                await self._insert(partition, late)
            await self.connection.execute(f"DROP TABLE {partition}")
        await self.connection.execute(
            f"ALTER TABLE {name} ATTACH PARTITION {self._new}"
            f" FOR VALUES FROM (MINVALUE) TO ({self.end.start});"
            f" ALTER TABLE {self._new} DROP CONSTRAINT _bound;"
            f" ALTER TABLE {self._new} RENAME TO {name}_early"
        )

    async def _insert(self, source: str, condition: str) -> None:
        columns = self.table.columns
        await self.connection.execute(
            f"INSERT INTO {self._new} ({columns}) SELECT {columns} FROM {source} WHERE {condition}"
        )

    async def discard(self) -> None:
        await self.connection.execute(f"DROP TABLE IF EXISTS {self._new}")


async def _months_before(connection: Connection, table: _Table, before: datetime) -> list[Month]:
    """Return the months with partitions that are over, on the database's clock too."""
    end = min(month_of(before.astimezone(UTC)), month_of(await connection.fetchval("SELECT now()")))
    return [month for month in await _months(connection, table) if month < end]


async def _months(connection: Connection, table: _Table) -> list[Month]:
    return [_parse_name(name) for (name,) in await connection.fetch(_MONTHS, table.name)]


async def _span(connection: Connection, now: Month) -> tuple[Month, Month]:
    """Return the first and the last month for which partitions must exist."""
    current = month_of(await connection.fetchval("SELECT now()"))
    last, limit = max(current, now).later(MONTHS_AHEAD), current.later(MAX_MONTHS_AHEAD)
    if last > limit:
        log.warning("clock is far ahead of Postgres", month=now.name, postgres=current.name)
    return current, min(last, limit)


async def _extend(
    connection: Connection, table: _Table, span: tuple[Month, Month], parts: int
) -> None:
    months = await _months(connection, table)
    if not months:
        await _create_first(connection, table, span, parts)
    elif (following := months[-1].later(1)) <= span[1]:
        await _add(connection, table, (following, span[1]), parts)


async def _create_first(
    connection: Connection, table: _Table, span: tuple[Month, Month], parts: int
) -> None:
    first, last = span
    await connection.execute(
        f"CREATE TABLE {table.early} PARTITION OF {table.name}"
        f" FOR VALUES FROM (MINVALUE) TO ({first.start})"
    )
    await _create(connection, table, span, parts)
    await connection.execute(
        f"CREATE TABLE {table.name}_late PARTITION OF {table.name}"
        f" FOR VALUES FROM ({last.later(1).start}) TO (MAXVALUE)"
    )


async def _add(
    connection: Connection, table: _Table, span: tuple[Month, Month], parts: int
) -> None:
    """Add months before the last partition, and move their rows out of it."""
    _, last = span
    name, late, end = table.name, f"{table.name}_late", last.later(1).start
    await connection.execute(f"ALTER TABLE {name} DETACH PARTITION {late}")
    await _create(connection, table, span, parts)
    await connection.execute(
        f"WITH due AS (DELETE FROM {late} WHERE {table.column} < {end} RETURNING {table.columns})"
        f" INSERT INTO {name} ({table.columns}) SELECT * FROM due"
    )
    await connection.execute(
        f"ALTER TABLE {name} ATTACH PARTITION {late} FOR VALUES FROM ({end}) TO (MAXVALUE)"
    )
    log.debug("monthly partitions created", table=name, upto=last.name)


async def _create(
    connection: Connection, table: _Table, span: tuple[Month, Month], parts: int
) -> None:
    month, last = span
    while month <= last:
        name = table.month(month)
        await connection.execute(
            f"CREATE TABLE {name} PARTITION OF {table.name}"
            f" FOR VALUES FROM ({month.start}) TO ({month.later(1).start})"
            + (" PARTITION BY HASH (entity_id)" if parts > 1 else "")
        )
        for part in range(parts if parts > 1 else 0):
            await connection.execute(
                f"CREATE TABLE {name}{_PART}{part} PARTITION OF {name}"
                f" FOR VALUES WITH (MODULUS {parts}, REMAINDER {part})"
            )
        month = month.later(1)


def _parse_name(partition: str) -> Month:
    year, number = partition.rsplit("_", 2)[1:]
    return Month(int(year), int(number))
