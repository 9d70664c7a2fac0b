"""What statements on the large tables share: rows in and out, portions, settled numbers."""

from __future__ import annotations

import asyncio

from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.pool import Postgres
from headwater.errors import BackendUnavailableError

INSERT_INCOMING = """
series AS (
    INSERT INTO _series (entity, entity_id, feature)
    SELECT g.entity, g.entity_id, g.feature
    FROM (SELECT DISTINCT entity, entity_id, feature FROM incoming) AS g
    LEFT JOIN LATERAL (
        SELECT true AS known FROM _series AS s
        WHERE s.entity = g.entity AND left(s.entity_id, 128) = left(g.entity_id, 128)
          AND s.entity_id = g.entity_id AND s.feature = g.feature
        LIMIT 1
    ) AS s ON true
    WHERE s.known IS NULL
)
INSERT INTO _history (feature, entity, entity_id, kind, value, as_of, written_at, cause)
SELECT feature, entity, entity_id, kind, value, as_of, written_at, cause FROM incoming ORDER BY n
"""
"""The end of a statement whose CTE ``incoming`` has the rows and their order ``n``.

LIMIT makes each lookup of an existing series an index probe; a plain join would read all of them.
"""

# Imports run one after the other, so that each sees the rows of the previous one.
LOCK_IMPORTS = (
    "SELECT pg_advisory_xact_lock(hashtext('headwater imports'), hashtext(current_schema()))"
)

LOCK_PARTITIONS = "LOCK TABLE _history IN ACCESS SHARE MODE"
"""The first statement of a transaction with one snapshot.

Rows that were moved to another partition after the snapshot would be invisible there.
"""

_LAST_OF = """
    SELECT {columns} FROM _history AS h
    WHERE h.feature = {feature}
      AND hashtextextended(h.entity_id, 0) = requested.hash AND h.entity_id = requested.entity_id
      AND {visible}
    ORDER BY h.as_of DESC, h.written_at DESC, h.seq DESC LIMIT 1
"""
_LAST_EXTRA = """
    SELECT NULL::bigint AS seq, e.value, e.as_of, 'infinity'::timestamptz AS written_at
    FROM {table} AS e
    WHERE e.hash = requested.hash AND e.entity_id = requested.entity_id
      AND e.as_of <= requested.moment
    ORDER BY e.as_of DESC, e.n DESC LIMIT 1
"""
_TRUE = "h.as_of <= requested.moment"
# The values written by that moment, in two parts: values whose as_of is later than it, which
# are few and have a separate index, and all others, of which the first one found is the last.
_AHEAD = """h.as_of > h.written_at
      AND h.as_of > requested.moment AND h.written_at <= requested.moment"""
_BEHIND = "h.as_of <= requested.moment AND h.written_at <= requested.moment"


def last_value(
    feature: str,
    *,
    known: bool,
    has_ahead: bool = True,
    extra: str | None = None,
    columns: str = "h.seq, h.value, h.as_of, h.written_at",
) -> str:
    """Return the query for the last value of a feature for a row of ``requested``.

    ``requested`` has the columns ``entity_id``, its ``hash``, and ``moment``. Without values ahead
    of the clock, one search less is enough. ``extra`` is a table of values that count as written
    after every value of history.
    """
    visible = [_AHEAD, _BEHIND] if known and has_ahead else [_BEHIND if known else _TRUE]
    parts = [
        _LAST_OF.format(columns=columns, feature=feature, visible=condition)
        for condition in visible
    ]
    if extra is not None:
        parts.append(_LAST_EXTRA.format(table=extra))
    if len(parts) == 1:
        return parts[0]
    united = " UNION ALL ".join(f"({part})" for part in parts)
    return f"{united} ORDER BY as_of DESC, written_at DESC LIMIT 1"


PAGES_AT_ONCE = 4_096

_PAGES = "SELECT pg_relation_size($1::regclass) / current_setting('block_size')::bigint"
_PARTITIONS = """
SELECT relid::regclass::text FROM pg_partition_tree($1::regclass) WHERE isleaf ORDER BY 1
"""


async def partitions_of(connection: Connection, table: str) -> list[str]:
    """Return the names of the tables with a table's rows."""
    return [name for (name,) in await connection.fetch(_PARTITIONS, table)]


async def pages_of(connection: Connection, table: str) -> list[str]:
    """Return conditions, each of which some rows of a table meet; every row meets one of them."""
    count: int = await connection.fetchval(_PAGES, table)
    return [
        f"{table}.ctid >= '({first},0)' AND {table}.ctid < '({first + PAGES_AT_ONCE},0)'"
        for first in range(0, count, PAGES_AT_ONCE)
    ]


WRITERS_SECONDS = 120.0
_POLL_SECONDS = 0.02

_LAST_NUMBER = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM _history_seq"
_WRITERS = """
SELECT virtualtransaction FROM pg_locks
WHERE relation = '_history'::regclass AND mode = 'RowExclusiveLock' AND granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


async def settled_number(postgres: Postgres) -> int:
    """Return the last number, when no transaction that is still running can have it or a lower one.

    A number is given out before its row is committed, so this waits for the transactions that are
    writing to history now. It blocks none: those that begin later get higher numbers.
    """
    last: int = await postgres.run(lambda connection: connection.fetchval(_LAST_NUMBER))
    running = await postgres.run(find_writers)
    waited = 0.0
    while running:
        if waited >= WRITERS_SECONDS:
            raise BackendUnavailableError(
                "a transaction of Postgres has been writing to history for more than "
                f"{WRITERS_SECONDS:.0f} seconds, so its rows cannot be counted yet; find it in "
                "pg_stat_activity, and try again when it has ended"
            )
        await asyncio.sleep(_POLL_SECONDS)
        waited += _POLL_SECONDS
        running &= await postgres.run(find_writers)
    return last


async def find_writers(connection: Connection) -> set[str]:
    """Return the transactions that are writing to history."""
    return {transaction for (transaction,) in await connection.fetch(_WRITERS)}
