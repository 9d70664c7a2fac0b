"""The store of documents, chunks and embeddings in Postgres."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import TypeVar
from weakref import WeakKeyDictionary

import asyncpg

from headwater.backends.postgres.outbox_consumer import OutboxConsumer
from headwater.backends.postgres.pool import Connection, Postgres
from headwater.backends.postgres.store_identity import StoreCheck
from headwater.backends.postgres.vectors.chunk_tables import ChunkTable, quoted
from headwater.backends.postgres.vectors.document_writes import write_documents
from headwater.backends.postgres.vectors.extension import exchange_vectors, extension_schema
from headwater.backends.postgres.vectors.generations import (
    activate_generation,
    create_generation,
    drop_index,
    generations_of,
    prune_index,
    version_of,
)
from headwater.backends.postgres.vectors.search import matching, nearest
from headwater.backends.postgres.vectors.stored_text import escape, read_metadata, unescape
from headwater.core.clock import Clock, from_micros
from headwater.model.indexes import Generation, IndexSpec, StoredDocument
from headwater.ports import DocumentWrite, Embedding, Hits, IndexVersion, VectorQuery
from headwater.settings.groups import VectorSettings

T = TypeVar("T")

_TABLE = """
SELECT g.id, g.dimensions, g.is_half FROM _generations AS g JOIN _indexes AS i ON i.id = g.index_id
WHERE i.name = $1 AND i.active IS NOT NULL AND g.number = $2
"""
_EMBEDDINGS = """
SELECT DISTINCT ON (content_hash) content_hash, embedding FROM {table}
WHERE content_hash = ANY ($1::text[]) ORDER BY content_hash
"""
_DOCUMENTS = """
SELECT d.document, d.text, d.metadata::text, d.version, d.indexed_at FROM _documents AS d
JOIN _indexes AS i ON i.id = d.index_id
JOIN unnest($2::text[]) AS wanted
  ON left(d.document, 128) = left(wanted, 128) AND d.document = wanted
WHERE i.name = $1 AND d.text IS NOT NULL
"""
_DOCUMENT_IDS = """
SELECT d.document FROM _documents AS d JOIN _indexes AS i ON i.id = d.index_id
WHERE i.name = $1 AND left(d.document, 128) >= left($2, 128) AND d.document > $2
  AND d.text IS NOT NULL
ORDER BY left(d.document, 128), d.document LIMIT $3
"""
_OUTDATED = """
SELECT d.document, d.text, d.metadata::text, d.version, d.indexed_at FROM _documents AS d
JOIN _indexes AS i ON i.id = d.index_id
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
        consumer: OutboxConsumer,
        store: StoreCheck,
        clock: Clock,
        settings: VectorSettings,
    ) -> None:
        self._postgres = postgres
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
        return await self._read(
            partial(activate_generation, index=index, number=generation, now=now)
        )

    async def write(self, writes: Sequence[DocumentWrite]) -> None:
        if writes:
            await self._read(partial(self._write, writes=writes))

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

    async def document_ids(self, index: str, *, after: str, limit: int) -> list[str]:
        rows = await self._read(
            lambda connection: connection.fetch(_DOCUMENT_IDS, index, escape(after), limit)
        )
        return [unescape(document) for (document,) in rows]

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
        return await self._read(partial(drop_index, index=index, now=now))

    async def prune(self, index: str, before: int) -> int:
        return await self._postgres.run(partial(prune_index, index=index, before=before))

    async def _read(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do work that has to see every write that was committed before."""
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
    document, text, metadata, version, indexed_at = row
    return StoredDocument(
        unescape(document),
        unescape(text),
        read_metadata(metadata),
        version,
        from_micros(indexed_at),
    )
