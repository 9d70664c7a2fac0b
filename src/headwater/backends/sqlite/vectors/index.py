"""Indexes of documents in the embedded store."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.backends.sqlite.home import Home
from headwater.backends.sqlite.vectors import generations
from headwater.backends.sqlite.vectors.block_files import remove_unused
from headwater.backends.sqlite.vectors.document_writes import write_documents
from headwater.backends.sqlite.writer import Writer
from headwater.core.clock import Clock, from_micros
from headwater.model.indexes import Generation, IndexSpec, StoredDocument
from headwater.ports import DocumentWrite, Embedding, Hits, IndexVersion, VectorQuery

if TYPE_CHECKING:
    from headwater.backends.sqlite.vectors.search import VectorSearch

_VERSION = """
SELECT number, spec, generations.changed_at FROM indexes JOIN generations ON index_id = indexes.id
WHERE name = ? AND state = 'active'
"""
_EMBEDDINGS = """
SELECT content_hash, embedding
FROM indexes CROSS JOIN generations ON index_id = indexes.id
CROSS JOIN json_each(?) CROSS JOIN chunk_contents ON content_hash = json_each.value
    AND chunk_contents.id BETWEEN generations.id << 32 AND (generations.id + 1 << 32) - 1
CROSS JOIN chunk_embeddings ON chunk_embeddings.id = chunk_contents.id
WHERE name = ? AND number = ? GROUP BY content_hash
"""
_STORED = "documents.document, text, metadata, version, indexed_at"
_DOCUMENTS = f"""
SELECT {_STORED} FROM indexes JOIN documents ON index_id = indexes.id
JOIN document_metadata ON document_metadata.id = metadata_id
WHERE name = ? AND document IN ({{}}) AND text IS NOT NULL
"""
_DOCUMENT_IDS = """
SELECT document FROM indexes JOIN documents ON index_id = indexes.id
WHERE name = ? AND document > ? AND text IS NOT NULL ORDER BY document LIMIT ?
"""
_OUTDATED = f"""
SELECT {_STORED} FROM indexes
JOIN generations ON generations.index_id = indexes.id
JOIN outdated_documents ON generation_id = generations.id
JOIN documents
    ON documents.index_id = indexes.id AND documents.document = outdated_documents.document
JOIN document_metadata ON document_metadata.id = metadata_id
WHERE name = ? AND number = ? AND outdated_documents.document > ?
ORDER BY outdated_documents.document LIMIT ?
"""
_decode_spec = msgspec.json.Decoder(IndexSpec).decode


class SqliteVectorIndex:
    """Documents, chunks and embeddings in the database of a home."""

    def __init__(self, home: Home, writer: Writer, clock: Clock) -> None:
        self._home = home
        self._writer = writer
        self._clock = clock
        self._loaded: VectorSearch | None = None

    async def version(self, index: str) -> IndexVersion | None:
        for number, spec, changed_at in self._home.read(_VERSION, (index,)):
            return IndexVersion(index, number, _decode_spec(spec), changed_at)
        return None

    async def generations(self, index: str | None = None) -> list[Generation]:
        if index is None:
            rows = self._home.read(generations.OF_ALL)
        else:
            rows = self._home.read(generations.OF_INDEX, (index,))
        return [generations.to_generation(row) for row in rows]

    async def create(self, index: str, spec: IndexSpec) -> Generation:
        while True:
            for generation in reversed(await self.generations(index)):
                if generation.spec == spec and generation.state != "retired":
                    return generation
            await self._writer.run(
                lambda db: generations.create(db, index, spec, self._clock.micros())
            )

    async def activate(self, index: str, generation: int) -> int:
        now = self._clock.micros()
        return await self._writer.run(lambda db: generations.activate(db, index, generation, now))

    async def write(self, writes: Sequence[DocumentWrite]) -> None:
        now = self._clock.micros()
        await self._writer.run(lambda db: write_documents(db, writes, now))

    async def embeddings(
        self, index: str, generation: int, content_hashes: Collection[str]
    ) -> dict[str, Embedding]:
        hashes = msgspec.json.encode(list(content_hashes)).decode()
        return dict(self._home.read(_EMBEDDINGS, (hashes, index, generation)))

    async def documents(self, index: str, documents: Collection[str]) -> dict[str, StoredDocument]:
        # Arguments and not one JSON text, in which SQLite ends a text at U+0000.
        sql = _DOCUMENTS.format(", ".join("?" * len(documents)))
        stored = map(_stored, self._home.read(sql, (index, *documents)))
        return {entry.document: entry for entry in stored}

    async def document_ids(self, index: str, *, after: str, limit: int) -> list[str]:
        return [document for (document,) in self._home.read(_DOCUMENT_IDS, (index, after, limit))]

    async def outdated(
        self, index: str, generation: int, *, after: str, limit: int
    ) -> list[StoredDocument]:
        return [
            _stored(row) for row in self._home.read(_OUTDATED, (index, generation, after, limit))
        ]

    async def nearest(self, query: VectorQuery) -> Hits:
        return await self._search.nearest(query)

    async def matching(self, query: VectorQuery) -> Hits:
        return await self._search.matching(query)

    @property
    def _search(self) -> VectorSearch:
        if self._loaded is None:
            from headwater.backends.sqlite.vectors.search import VectorSearch  # noqa: PLC0415 - loads NumPy

            self._loaded = VectorSearch(self._home)
        return self._loaded

    async def drop(self, index: str) -> int:
        now = self._clock.micros()
        documents = await self._writer.run(lambda db: generations.drop(db, index, now))
        await self._remove_dropped()
        return documents

    async def prune(self, index: str, before: int) -> int:
        pruned = 0
        has_more = bool(self._home.read(generations.HAS_OLD, (index, before))[0][0])
        while has_more:
            removed, has_more = await self._writer.run(
                lambda db: generations.remove_old(db, index, before)
            )
            pruned += removed
        # A process that dropped an index may have ended before all of it was removed.
        if pruned or self._home.read(generations.HAS_DROPPED)[0][0]:
            await self._remove_dropped()
        return pruned

    async def _remove_dropped(self) -> None:
        """Remove the contents of dropped indexes, and the files of chunks that are gone."""
        while await self._writer.run(generations.remove_dropped):
            pass
        await asyncio.to_thread(remove_unused, self._home)


def _stored(row: tuple[Any, ...]) -> StoredDocument:
    document, text, metadata, version, indexed_at = row
    return StoredDocument(
        document, text, msgspec.json.decode(metadata), version, from_micros(indexed_at)
    )
