"""Adding past values in bulk: those that history does not hold yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headwater.backends.postgres.history_sql import KEEP_GIVEN
from headwater.backends.postgres.pool import Connection
from headwater.ports import Change

# What one statement takes stays far below the time that it has.
CHANGES_AT_ONCE = 20_000

# Of imports at once, the later one has to see what the earlier one added.
_LOCK = "SELECT pg_advisory_xact_lock(hashtext('headwater imports'), hashtext(current_schema()))"

_STAGE = """
CREATE TEMPORARY TABLE _given (
    n bigint, feature text COLLATE "C", entity text COLLATE "C", entity_id text COLLATE "C",
    kind text COLLATE "C", value text COLLATE "C", as_of bigint, written_at bigint,
    cause text COLLATE "C"
) ON COMMIT DROP
"""

_KEEP = f"""
WITH given AS MATERIALIZED (
    SELECT DISTINCT ON (g.feature, g.entity_id, g.as_of, g.cause, g.value)
           g.n, g.feature, g.entity, g.entity_id, g.kind, g.value::json AS value,
           _moment(g.as_of) AS as_of, _moment(g.written_at) AS written_at, g.cause
    FROM _given AS g
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
{KEEP_GIVEN}
"""


async def add(connection: Connection, changes: Sequence[Change]) -> None:
    """Adds those of the changes that are not there yet, all or none."""
    async with connection.transaction():
        await connection.execute(_LOCK)
        await connection.execute(_STAGE)
        await connection.copy_records_to_table("_given", records=_records(changes))
        await connection.execute(_KEEP)


def _records(changes: Sequence[Change]) -> Iterator[tuple[int | str, ...]]:
    for number, change in enumerate(changes):
        cell = change.cell
        yield (
            number,
            change.feature,
            change.entity,
            change.entity_id,
            change.kind,
            bytes(cell.value).decode(),
            cell.as_of,
            cell.written_at,
            change.cause,
        )
