"""Indexes of documents in Postgres with pgvector, and their generations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import asyncpg

from headwater.backends.document_plan import id_range
from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.outbox_consumer import OutboxConsumer
from headwater.backends.postgres.pool import Postgres
from headwater.backends.postgres.replicas import ReplicaReads
from headwater.backends.postgres.store_identity import StoreCheck
from headwater.backends.postgres.vectors.chunk_tables import (
    ChunkTable,
    check_dimensions,
    create_table,
    drop_table,
    exchange_vectors,
    extension_schema,
    quoted,
)
from headwater.backends.postgres.vectors.document_writes import write_documents
from headwater.backends.postgres.vectors.search import matching, nearest
from headwater.backends.postgres.vectors.stored_forms import escape, read_metadata, unescape
from headwater.core.clock import Clock, from_micros
from headwater.errors import NotFoundError
from headwater.model.indexes import Generation, IndexedDocument, IndexSpec, StoredDocument
from headwater.ports import DocumentWrite, Embedding, Hits, IndexVersion, VectorQuery
from headwater.settings.servers import VectorSettings

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


T = TypeVar("T")

_TABLE = """
SELECT g.id, g.dimensions, g.is_half FROM _generations AS g JOIN _indexes AS i ON i.id = g.index_id
WHERE i.name = $1 AND i.active IS NOT NULL AND g.number = $2
"""
_EMBEDDINGS = """
SELECT DISTINCT ON (content_hash) content_hash, embedding FROM {table}
WHERE content_hash = ANY ($1::text[]) ORDER BY content_hash
"""
_LISTED = """
d.document, d.metadata::text, d.version, d.indexed_at,
  CASE WHEN a.version = d.version THEN 'ready' ELSE 'indexing' END
FROM _documents AS d JOIN _indexes AS i ON i.id = d.index_id
LEFT JOIN _document_versions AS a ON a.document_id = d.id AND a.generation_id = i.active
"""
_STORED = f"SELECT d.text, {_LISTED}"
_DOCUMENTS = f"""
{_STORED}
JOIN unnest($2::text[]) AS wanted
  ON left(d.document, 128) = left(wanted, 128) AND d.document = wanted
WHERE i.name = $1 AND d.text IS NOT NULL
"""
_DOCUMENT_LIST = f"""
SELECT {_LISTED}
WHERE i.name = $1 AND left(d.document, 128) >= left($2, 128) AND d.document >= $2
  AND left(d.document, 128) <= left($3, 128) AND d.document < $3 AND d.text IS NOT NULL
ORDER BY left(d.document, 128), d.document LIMIT $4
"""
_OUTDATED = f"""
{_STORED}
JOIN _generations AS g ON g.index_id = i.id AND g.number = $2
LEFT JOIN _document_versions AS v ON v.document_id = d.id AND v.generation_id = g.id
WHERE i.name = $1 AND left(d.document, 128) >= left($3, 128) AND d.document > $3
  AND d.text IS NOT NULL AND v.version IS DISTINCT FROM d.version
ORDER BY left(d.document, 128), d.document LIMIT $4
"""
_NOTHING = Hits(0, (), is_active=False)


class PostgresVectorIndex:
    """Documents, chunks and embeddings in Postgres with pgvector."""

    def __init__(
        self,
        postgres: Postgres,
        reads: Postgres | ReplicaReads,
        consumer: OutboxConsumer,
        store: StoreCheck,
        clock: Clock,
        settings: VectorSettings,
    ) -> None:
        self._postgres = postgres
        self._reads = reads
        self._consumer = consumer
        self._store = store
        self._clock = clock
        self._settings = settings
        self._schemas: WeakKeyDictionary[Connection, str] = WeakKeyDictionary()
        """The schema of pgvector, by connections that exchange vectors."""
        self._tables: dict[tuple[str, int], ChunkTable] = {}

    async def version(self, index: str) -> IndexVersion | None:
        return await self._read(partial(version_of, index=index))

    async def generations(self, index: str | None = None) -> list[Generation]:
        return await self._read(partial(generations_of, index=index))

    async def create(self, index: str, spec: IndexSpec) -> Generation:
        return await self._postgres.run(lambda connection: self._create(connection, index, spec))

    async def _create(self, connection: Connection, index: str, spec: IndexSpec) -> Generation:
        schema = quoted(await extension_schema(connection))
        now = self._clock.micros()
        return await create_generation(connection, index, spec, now, self._settings, schema)

    async def activate(self, index: str, generation: int) -> int:
        now = self._clock.micros()
        return await self._change(
            partial(activate_generation, index=index, number=generation, now=now)
        )

    async def write(self, writes: Sequence[DocumentWrite]) -> None:
        if writes:
            await self._change(partial(self._write, writes=writes))

    async def _write(self, connection: Connection, writes: Sequence[DocumentWrite]) -> None:
        async with connection.transaction():
            now = self._clock.micros()
            await write_documents(connection, [(now, write) for write in writes])

    async def embeddings(
        self, index: str, generation: int, content_hashes: Collection[str]
    ) -> dict[str, Embedding]:
        async def select(connection: Connection, table: ChunkTable) -> dict[str, Embedding]:
            rows = await connection.fetch(_EMBEDDINGS.format(table=table.name), [*content_hashes])
            return {content_hash: embedding for content_hash, embedding in rows}

        return await self._search(index, generation, select, {})

    async def documents(self, index: str, documents: Collection[str]) -> dict[str, StoredDocument]:
        escaped = [escape(document) for document in documents]
        rows = await self._read(lambda connection: connection.fetch(_DOCUMENTS, index, escaped))
        return {stored.document: stored for stored in map(_document, rows)}

    async def list_documents(
        self, index: str, *, prefix: str = "", after: str, limit: int
    ) -> list[IndexedDocument]:
        first, end = map(escape, id_range(prefix, after))
        rows = await self._read(
            lambda connection: connection.fetch(_DOCUMENT_LIST, index, first, end, limit)
        )
        return [_listed(index, *row) for row in rows]

    async def outdated(
        self, index: str, generation: int, *, after: str, limit: int
    ) -> list[StoredDocument]:
        rows = await self._read(
            lambda connection: connection.fetch(_OUTDATED, index, generation, escape(after), limit)
        )
        return [_document(row) for row in rows]

    async def nearest(self, query: VectorQuery) -> Hits:
        return await self._search(
            query.index, query.generation, partial(nearest, query=query), _NOTHING
        )

    async def matching(self, query: VectorQuery) -> Hits:
        return await self._search(
            query.index, query.generation, partial(matching, query=query), _NOTHING
        )

    async def drop(self, index: str) -> int:
        now = self._clock.micros()
        return await self._change(partial(drop_index, index=index, now=now))

    async def prune(self, index: str, before: int) -> int:
        return await self._postgres.run(partial(prune_index, index=index, before=before))

    async def _read(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Return what work finds that has to see every write that was committed before."""
        self._store.raise_known_mismatch()
        return await self._consumer.read_documents(lambda: self._reads.run(work))

    async def _change(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do work that changes what every write that was committed before has left."""
        self._store.raise_known_mismatch()
        await self._consumer.catch_up_documents()
        return await self._postgres.run(work)

    async def _search(
        self,
        index: str,
        generation: int,
        work: Callable[[Connection, ChunkTable], Awaitable[T]],
        nothing: T,
    ) -> T:
        """Search the table of a generation; there is nothing in one that is gone."""

        async def search(connection: Connection) -> T:
            table = await self._table(connection, index, generation)
            if table is None:
                return nothing
            try:
                return await work(connection, table)
            except asyncpg.UndefinedTableError:
                self._tables.pop((index, generation), None)
                return nothing

        return await self._read(search)

    async def _table(
        self, connection: Connection, index: str, generation: int
    ) -> ChunkTable | None:
        schema = self._schemas.get(connection)
        if schema is None:
            schema = await extension_schema(connection)
            await exchange_vectors(connection, schema)
            self._schemas[connection] = schema
        # Numbers are never given twice, so the table of a generation stays the same.
        if (index, generation) not in self._tables:
            row = await connection.fetchrow(_TABLE, index, generation)
            if row is None:
                return None
            generation_id, dimensions, is_half = row
            table = ChunkTable(generation_id, dimensions, is_half, quoted(schema))
            self._tables[index, generation] = table
        return self._tables[index, generation]


def _document(row: asyncpg.Record) -> StoredDocument:
    text, document, metadata, version, indexed_at, status = row
    return StoredDocument(
        unescape(document),
        unescape(text),
        read_metadata(metadata),
        version,
        from_micros(indexed_at),
        status,
    )


def _listed(
    index: str, document: str, metadata: str, version: int, indexed_at: int, status: Any
) -> IndexedDocument:
    return IndexedDocument(
        index=index,
        document=unescape(document),
        version=version,
        indexed_at=from_micros(indexed_at),
        metadata=read_metadata(metadata),
        status=status,
    )
