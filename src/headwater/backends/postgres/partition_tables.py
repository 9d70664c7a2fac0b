"""The monthly partitions of the large tables, created ahead of time.

The first partition holds everything before the months and the last one everything after them, so
no row is ever refused. The first month comes from the database's clock, the last one from the clock
of the process that adds it, limited to two years after the database's clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

import asyncpg

from headwater.backends.postgres.pool import Connection
from headwater.core.logging import log

MONTHS_AHEAD = 3
# The limit after the database's clock, for a process whose clock is wrong.
MAX_MONTHS_AHEAD = 24
# A waiting lock blocks new queries, so it must not wait long for a running one.
_LOCK_TIMEOUT = "2s"
# The lock that migrations use.
_TRY_LOCK = "SELECT pg_try_advisory_xact_lock(hashtext('headwater tables'), hashtext($1))"
_NEWEST = r"""
SELECT max(relname) FROM pg_inherits JOIN pg_class ON oid = inhrelid
WHERE inhparent = $1::regclass AND relname ~ '_\d{4}_\d\d$'
"""


class _Table(NamedTuple):
    name: str
    column: str
    columns: str


_TABLES = (
    _Table(
        "_history",
        "as_of",
        "seq, as_of, written_at, feature, entity, entity_id, kind, cause, value",
    ),
    _Table(
        "_events",
        "received_at",
        'partition, received_at, "timestamp", position, event_type, entity_id, event_id, payload',
    ),
)


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


class _Span(NamedTuple):
    """The months for which partitions must exist."""

    first: Month
    last: Month


def month_of(moment: datetime) -> Month:
    return Month(moment.year, moment.month)


async def extend(connection: Connection, now: datetime) -> None:
    """Add the missing months in the caller's transaction."""
    span = await _span(connection, month_of(now))
    for table in _TABLES:
        await _extend(connection, table, span)


async def extend_if_free(connection: Connection, schema: str, now: datetime) -> bool:
    """Add the missing months in one transaction per table; return False if a lock prevents it."""
    span = await _span(connection, month_of(now))
    try:
        for table in _TABLES:
            async with connection.transaction():
                await connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
                if not await connection.fetchval(_TRY_LOCK, schema):
                    return False
                await _extend(connection, table, span)
    except asyncpg.LockNotAvailableError:
        log.debug("monthly partitions postponed")
        return False
    except asyncpg.InsufficientPrivilegeError as error:
        # Rows are stored in the last partition meanwhile.
        log.warning("no permission to create monthly partitions", reason=str(error))
    return True


async def _span(connection: Connection, now: Month) -> _Span:
    current = month_of(await connection.fetchval("SELECT now()"))
    last, limit = max(current, now).later(MONTHS_AHEAD), current.later(MAX_MONTHS_AHEAD)
    if last > limit:
        log.warning("clock is far ahead of Postgres", month=now.name, postgres=current.name)
    return _Span(current, min(last, limit))


async def _extend(connection: Connection, table: _Table, span: _Span) -> None:
    newest = await connection.fetchval(_NEWEST, table.name)
    if newest is None:
        await _create_first(connection, table, *span)
    elif (first := _parse_name(newest).later(1)) <= span.last:
        await _add(connection, table, first, span.last)


async def _create_first(connection: Connection, table: _Table, first: Month, last: Month) -> None:
    await connection.execute(
        f"CREATE TABLE {table.name}_early PARTITION OF {table.name}"
        f" FOR VALUES FROM (MINVALUE) TO ({first.start})"
    )
    await _create(connection, table, first, last)
    await connection.execute(
        f"CREATE TABLE {table.name}_late PARTITION OF {table.name}"
        f" FOR VALUES FROM ({last.later(1).start}) TO (MAXVALUE)"
    )


async def _add(connection: Connection, table: _Table, first: Month, last: Month) -> None:
    """Add months before the last partition, and move their rows out of it."""
    name, late, end = table.name, f"{table.name}_late", last.later(1).start
    await connection.execute(f"ALTER TABLE {name} DETACH PARTITION {late}")
    await _create(connection, table, first, last)
    await connection.execute(
        f"WITH due AS (DELETE FROM {late} WHERE {table.column} < {end} RETURNING {table.columns})"
        f" INSERT INTO {name} ({table.columns}) SELECT * FROM due"
    )
    await connection.execute(
        f"ALTER TABLE {name} ATTACH PARTITION {late} FOR VALUES FROM ({end}) TO (MAXVALUE)"
    )
    log.debug("monthly partitions created", table=name, upto=last.name)


async def _create(connection: Connection, table: _Table, first: Month, last: Month) -> None:
    for month in _months(first, last):
        await connection.execute(
            f"CREATE TABLE {table.name}_{month.name} PARTITION OF {table.name}"
            f" FOR VALUES FROM ({month.start}) TO ({month.later(1).start})"
        )


def _months(first: Month, last: Month) -> Iterator[Month]:
    while first <= last:
        yield first
        first = first.later(1)


def _parse_name(partition: str) -> Month:
    year, number = partition.rsplit("_", 2)[1:]
    return Month(int(year), int(number))
