"""Portions of a table by its pages, which need no index and keep every statement short."""

from __future__ import annotations

from headwater.backends.postgres.pool import Connection

PAGES_AT_ONCE = 4_096

_PAGES = "SELECT pg_relation_size($1::regclass) / current_setting('block_size')::bigint"
_PARTITIONS = """
SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = $1::regclass ORDER BY 1
"""


async def partitions_of(connection: Connection, table: str) -> list[str]:
    """Return the names of a table's partitions."""
    return [name for (name,) in await connection.fetch(_PARTITIONS, table)]


async def pages_of(connection: Connection, table: str) -> list[str]:
    """Return conditions, each of which some rows of a table meet; every row meets one of them."""
    count: int = await connection.fetchval(_PAGES, table)
    return [
        f"{table}.ctid >= '({first},0)' AND {table}.ctid < '({first + PAGES_AT_ONCE},0)'"
        for first in range(0, count, PAGES_AT_ONCE)
    ]
