"""The generations of indexes."""

from __future__ import annotations

from typing import Any

import asyncpg

from headwater.backends.postgres.pool import Connection
from headwater.backends.postgres.vectors.chunk_tables import (
    ChunkTable,
    check_dimensions,
    create_table,
    drop_table,
)
from headwater.core.clock import from_micros
from headwater.errors import InvalidInputError
from headwater.ports import Generation, IndexSpec, IndexVersion
from headwater.settings.groups import VectorSettings

_SELECT = """
SELECT g.*, i.name, i.documents - g.up_to_date AS outdated
FROM _generations AS g JOIN _indexes AS i ON i.id = g.index_id AND i.active IS NOT NULL
"""
_ALL = f"{_SELECT} ORDER BY i.name, g.number"
_OF_INDEX = f"{_SELECT} WHERE i.name = $1 ORDER BY g.number"
_VERSION = """
SELECT g.* FROM _indexes AS i JOIN _generations AS g ON g.id = i.active WHERE i.name = $1
"""
_ADD_INDEX = "INSERT INTO _indexes (name) VALUES ($1) ON CONFLICT DO NOTHING"
LOCK_INDEX = "SELECT id, active, documents FROM _indexes WHERE name = $1 FOR UPDATE"
_NEXT_NUMBER = (
    "UPDATE _indexes SET generations = generations + 1 WHERE id = $1 RETURNING generations"
)
_ADD = """
INSERT INTO _generations (
    index_id, number, embedder, dimensions, chunk_tokens, overlap, is_half,
    state, created_at, activated_at
) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) RETURNING id
"""
_SET_ACTIVE = "UPDATE _indexes SET active = $2 WHERE id = $1"
_RETIRE = """
UPDATE _generations SET state = 'retired', retired_at = $3
WHERE index_id = $1 AND state = 'active' AND id <> $2
"""
_ACTIVATE = """
UPDATE _generations SET state = 'active', activated_at = $2, retired_at = NULL WHERE id = $1
"""


async def version_of(connection: Connection, index: str) -> IndexVersion | None:
    """Return the version of an index's active generation; None if there is no such index."""
    row = await connection.fetchrow(_VERSION, index)
    if row is None:
        return None
    return IndexVersion(index, row["number"], _spec(row), row["changed_at"])


async def generations_of(connection: Connection, index: str | None) -> list[Generation]:
    """Return the generations of one index or of all."""
    if index is None:
        rows = await connection.fetch(_ALL)
    else:
        rows = await connection.fetch(_OF_INDEX, index)
    return [_generation(row) for row in rows]


async def create_generation(
    connection: Connection,
    index: str,
    spec: IndexSpec,
    now: int,
    settings: VectorSettings,
    schema: str,
) -> Generation:
    """Return the newest generation with this spec; create it with its table if there is none."""
    check_dimensions(spec.dimensions)
    async with connection.transaction():
        await connection.execute(_ADD_INDEX, index)
        index_id, active, _ = await _locked(connection, index)
        same = [
            each
            for each in await generations_of(connection, index)
            if each.spec == spec and each.state != "retired"
        ]
        if same:
            return same[-1]
        is_first = active is None
        generation_id = await connection.fetchval(
            _ADD,
            index_id,
            await connection.fetchval(_NEXT_NUMBER, index_id),
            *(spec.embedder, spec.dimensions, spec.chunk_tokens, spec.overlap, settings.halfvec),
            *("active" if is_first else "building", now, now if is_first else None),
        )
        if is_first:
            await connection.execute(_SET_ACTIVE, index_id, generation_id)
        table = ChunkTable(generation_id, spec.dimensions, settings.halfvec, schema)
        await create_table(connection, table, settings)
        return (await generations_of(connection, index))[-1]


async def activate_generation(connection: Connection, index: str, number: int, now: int) -> int:
    """Make a generation the active one unless documents are outdated; return their number."""
    async with connection.transaction():
        index_id, active, documents = await _locked(connection, index)
        row = await connection.fetchrow(
            "SELECT id, up_to_date FROM _generations WHERE index_id = $1 AND number = $2",
            *(index_id, number),
        )
        if active is None or row is None:
            raise InvalidInputError(
                f"index {index!r} has no generation {number}; "
                "see `headwater index status` for the existing ones"
            )
        generation_id, up_to_date = row
        outdated: int = documents - up_to_date
        if outdated == 0 and generation_id != active:
            await connection.execute(_RETIRE, index_id, generation_id, now)
            await connection.execute(_ACTIVATE, generation_id, now)
            await connection.execute(_SET_ACTIVE, index_id, generation_id)
        return outdated


async def drop_index(connection: Connection, index: str) -> int:
    """Remove an index with its tables; return its number of documents."""
    async with connection.transaction():
        index_id, active, documents = await _locked(connection, index)
        if active is None:
            return 0
        await _remove(
            connection,
            await connection.fetch("SELECT id FROM _generations WHERE index_id = $1", index_id),
        )
        await connection.execute("DELETE FROM _documents WHERE index_id = $1", index_id)
        await connection.execute(
            "UPDATE _indexes SET active = NULL, documents = 0 WHERE id = $1", index_id
        )
        count: int = documents
        return count


async def prune_index(connection: Connection, index: str, before: int) -> int:
    """Remove chunks that were replaced, and generations that were retired, before a time."""
    async with connection.transaction():
        index_id, _, _ = await _locked(connection, index)
        rows = await connection.fetch(
            "SELECT id, chunks, coalesce(retired_at < $2, false) AS is_old "
            "FROM _generations WHERE index_id = $1",
            *(index_id, before),
        )
        old = [row for row in rows if row["is_old"]]
        removed = 0
        for row in rows:
            condition = "true" if row["is_old"] else "valid_to < $1"
            arguments = [] if row["is_old"] else [before]
            removed += await connection.fetchval(
                f"WITH gone AS (DELETE FROM _chunks_{row['id']} WHERE {condition} RETURNING 1) "
                "SELECT count(*) FROM gone",
                *arguments,
            )
        await _remove(connection, old)
        return removed + len(old)


async def _remove(connection: Connection, generations: list[asyncpg.Record]) -> None:
    ids = [row["id"] for row in generations]
    for generation_id in ids:
        await drop_table(connection, generation_id)
    await connection.execute("DELETE FROM _document_versions WHERE generation_id = ANY ($1)", ids)
    await connection.execute("DELETE FROM _generations WHERE id = ANY ($1)", ids)


async def _locked(connection: Connection, index: str) -> tuple[int, int | None, int]:
    """Lock an index; return its id, active generation and number of documents."""
    row = await connection.fetchrow(LOCK_INDEX, index)
    return (0, None, 0) if row is None else (row["id"], row["active"], row["documents"])


def _spec(row: Any) -> IndexSpec:
    return IndexSpec(
        embedder=row["embedder"],
        dimensions=row["dimensions"],
        chunk_tokens=row["chunk_tokens"],
        overlap=row["overlap"],
    )


def _generation(row: Any) -> Generation:
    activated, retired, changed = row["activated_at"], row["retired_at"], row["changed_at"]
    return Generation(
        index=row["name"],
        number=row["number"],
        spec=_spec(row),
        state=row["state"],
        created_at=from_micros(row["created_at"]),
        activated_at=None if activated is None else from_micros(activated),
        retired_at=None if retired is None else from_micros(retired),
        changed_at=from_micros(changed) if changed else None,
        documents=row["documents"],
        chunks=row["chunks"],
        outdated=row["outdated"],
    )
