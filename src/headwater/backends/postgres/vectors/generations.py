"""The generations of indexes."""

from __future__ import annotations

from typing import Any, NamedTuple

from headwater.backends.postgres.pool import Connection
from headwater.backends.postgres.vectors.chunk_tables import (
    ChunkTable,
    check_dimensions,
    create_table,
    drop_table,
)
from headwater.core.clock import from_micros
from headwater.errors import NotFoundError
from headwater.model.indexes import Generation, IndexSpec
from headwater.ports import IndexVersion
from headwater.settings.groups import VectorSettings

_SELECT = """
SELECT g.*, i.name,
    CASE WHEN g.state = 'retired' THEN 0 ELSE i.documents - g.up_to_date END AS outdated
FROM _generations AS g JOIN _indexes AS i ON i.id = g.index_id AND i.active IS NOT NULL
"""
_ALL = f"{_SELECT} ORDER BY i.name, g.number"
_OF_INDEX = f"{_SELECT} WHERE i.name = $1 ORDER BY g.number"
_VERSION = """
SELECT g.* FROM _indexes AS i JOIN _generations AS g ON g.id = i.active WHERE i.name = $1
"""
_ADD_INDEX = "INSERT INTO _indexes (name) VALUES ($1) ON CONFLICT DO NOTHING"
_LOCK = "SELECT id, active, documents, changed_at FROM _indexes WHERE name = $1 FOR UPDATE"
_CHANGED = "UPDATE _indexes SET changed_at = $2, active = $3 WHERE id = $1"
_NEXT_NUMBER = """
UPDATE _indexes SET generations = generations + 1 WHERE id = $1 RETURNING generations
"""
_ADD = """
INSERT INTO _generations (
    index_id, number, embedder, dimensions, chunk_tokens, overlap, is_half,
    state, created_at, changed_at, activated_at
) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9, $10) RETURNING id
"""
_FIND = """
SELECT id, up_to_date FROM _generations WHERE index_id = $1 AND number = $2 AND state <> 'retired'
"""
_RETIRE = """
WITH retired AS (
    UPDATE _generations SET state = 'retired', retired_at = $3
    WHERE index_id = $1 AND number < $2 AND state <> 'retired' RETURNING id
)
DELETE FROM _document_versions WHERE generation_id IN (SELECT id FROM retired)
"""
_ACTIVATE = """
UPDATE _generations SET state = 'active', activated_at = $2, changed_at = $2 WHERE id = $1
"""
_PRUNED = """
SELECT id, coalesce(retired_at < $2, false) AS is_old FROM _generations WHERE index_id = $1
"""
_PRUNE_DOCUMENTS = "DELETE FROM _documents WHERE index_id = $1 AND text IS NULL AND indexed_at < $2"


class _Locked(NamedTuple):
    """An index whose row is locked."""

    id: int
    active: int | None
    """None if the index was dropped."""
    documents: int
    changed_at: int

    def moment(self, now: int) -> int:
        """Return the time of a change, which is later than that of the last one."""
        return max(now, self.changed_at + 1)


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
        locked = await _locked(connection, index)
        assert locked is not None
        for generation in reversed(await generations_of(connection, index)):
            if generation.spec == spec and generation.state != "retired":
                return generation
        moment, is_first = locked.moment(now), locked.active is None
        generation_id = await connection.fetchval(
            _ADD,
            locked.id,
            await connection.fetchval(_NEXT_NUMBER, locked.id),
            *(spec.embedder, spec.dimensions, spec.chunk_tokens, spec.overlap, settings.halfvec),
            *("active" if is_first else "building", moment, moment if is_first else None),
        )
        active = generation_id if is_first else locked.active
        await connection.execute(_CHANGED, locked.id, moment, active)
        table = ChunkTable(generation_id, spec.dimensions, settings.halfvec, schema)
        await create_table(connection, table, settings)
        return (await generations_of(connection, index))[-1]


async def activate_generation(connection: Connection, index: str, number: int, now: int) -> int:
    """Make a generation the active one unless documents are outdated; return their number.

    Earlier generations are retired.
    """
    async with connection.transaction():
        locked = await _locked(connection, index)
        row = locked and await connection.fetchrow(_FIND, locked.id, number)
        if locked is None or row is None:
            raise NotFoundError(
                f"index {index!r} has no generation {number} that is being built, so it cannot be "
                "activated; `headwater index status` lists the generations"
            )
        generation_id, up_to_date = row
        outdated: int = locked.documents - up_to_date
        if outdated == 0 and generation_id != locked.active:
            moment = locked.moment(now)
            await connection.execute(_RETIRE, locked.id, number, moment)
            await connection.execute(_ACTIVATE, generation_id, moment)
            await connection.execute(_CHANGED, locked.id, moment, generation_id)
        return outdated


async def drop_index(connection: Connection, index: str, now: int) -> int:
    """Remove an index with its tables; return its number of documents."""
    async with connection.transaction():
        locked = await _locked(connection, index)
        if locked is None:
            return 0
        rows = await connection.fetch("SELECT id FROM _generations WHERE index_id = $1", locked.id)
        await _remove(connection, [row["id"] for row in rows])
        await connection.execute("DELETE FROM _documents WHERE index_id = $1", locked.id)
        await connection.execute(_CHANGED, locked.id, locked.moment(now), None)
        await connection.execute("UPDATE _indexes SET documents = 0 WHERE id = $1", locked.id)
        return locked.documents


async def prune_index(connection: Connection, index: str, before: int) -> int:
    """Remove chunks that were replaced, and generations that were retired, before a time."""
    async with connection.transaction():
        locked = await _locked(connection, index)
        if locked is None:
            return 0
        rows = await connection.fetch(_PRUNED, locked.id, before)
        removed = 0
        for generation_id, is_old in rows:
            table = f"_chunks_{generation_id}"
            if is_old:
                removed += 1 + await connection.fetchval(f"SELECT count(*) FROM {table}")
            else:
                status = await connection.execute(
                    f"DELETE FROM {table} WHERE valid_to < $1", before
                )
                removed += int(status.rpartition(" ")[2])
        await _remove(connection, [generation_id for generation_id, is_old in rows if is_old])
        await connection.execute(_PRUNE_DOCUMENTS, locked.id, before)
        return removed


async def _remove(connection: Connection, generations: list[int]) -> None:
    for generation_id in generations:
        await drop_table(connection, generation_id)
    await connection.execute(
        "DELETE FROM _document_versions WHERE generation_id = ANY ($1)", generations
    )
    await connection.execute("DELETE FROM _generations WHERE id = ANY ($1)", generations)


async def _locked(connection: Connection, index: str) -> _Locked | None:
    """Lock the row of an index; return None if there is none."""
    row = await connection.fetchrow(_LOCK, index)
    return None if row is None else _Locked(*row)


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
        changed_at=None if changed == row["created_at"] else from_micros(changed),
        documents=row["documents"],
        chunks=row["chunks"],
        outdated=row["outdated"],
    )
