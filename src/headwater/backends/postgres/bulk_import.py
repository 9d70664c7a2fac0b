"""Bulk import of past values that are not in history yet."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from headwater.backends.observed import count_erased
from headwater.backends.postgres.history_sql import INSERT_INCOMING
from headwater.backends.postgres.pool import Connection
from headwater.ports import Change, Ledger, history_rows

CurrentLedger = Callable[[Connection], Awaitable[Ledger]]
"""Returns the erasures as of a transaction."""

# A statement with so many changes takes far less than its timeout.
CHANGES_AT_ONCE = 20_000

# Imports run one after the other, so that each sees the rows of the previous one.
LOCK_IMPORTS = (
    "SELECT pg_advisory_xact_lock(hashtext('headwater imports'), hashtext(current_schema()))"
)

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


async def add(connection: Connection, changes: Sequence[Change], current: CurrentLedger) -> int:
    """Add the changes that are not in history yet, all or none; return their number."""
    async with connection.transaction():
        await connection.execute(LOCK_IMPORTS)
        # After the lock, which an erasure needs as well.
        admitted = (await current(connection)).admitted(changes, lambda _: True)
        count_erased("value", admitted.dropped)
        await connection.execute(_STAGE)
        rows = enumerate(history_rows(admitted.changes, lambda value: bytes(value).decode()))
        await connection.copy_records_to_table(
            "_imported", records=((number, *row) for number, row in rows)
        )
        status = await connection.execute(_INSERT)  # such as INSERT 0 20000
        return int(status.split()[-1])
