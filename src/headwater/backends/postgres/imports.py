"""Adding past values in bulk: those that history does not hold yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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

_KEEP = """
WITH given AS MATERIALIZED (
    SELECT DISTINCT ON (feature, entity_id, as_of, cause, value)
           n, feature, entity, entity_id, kind, value::json AS value, _moment(as_of) AS as_of,
           _moment(written_at) AS written_at, cause
    FROM _given AS g
    WHERE NOT EXISTS (
        SELECT FROM _history AS h
        WHERE h.feature = g.feature
          AND hashtextextended(h.entity_id, 0) = hashtextextended(g.entity_id, 0)
          AND h.entity_id = g.entity_id AND h.as_of = _moment(g.as_of)
          AND h.cause = g.cause AND h.value::text = g.value
    )
    ORDER BY feature, entity_id, as_of, cause, value, n
),
series AS (
    INSERT INTO _series (entity, entity_id, feature)
    SELECT DISTINCT entity, entity_id, feature FROM given
    WHERE NOT EXISTS (
        SELECT FROM _series AS s
        WHERE s.entity = given.entity AND left(s.entity_id, 128) = left(given.entity_id, 128)
          AND s.entity_id = given.entity_id AND s.feature = given.feature
    )
)
INSERT INTO _history (feature, entity, entity_id, kind, value, as_of, written_at, cause)
SELECT feature, entity, entity_id, kind, value, as_of, written_at, cause FROM given ORDER BY n
"""


async def add(connection: Connection, changes: Sequence[Change]) -> None:
    """Adds those of the changes that are not there yet, all or none."""
    async with connection.transaction():
        await connection.execute(_LOCK)
        await connection.execute(_STAGE)
        await connection.copy_records_to_table("_given", records=_records(changes))
        await connection.execute("ANALYZE _given")
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
