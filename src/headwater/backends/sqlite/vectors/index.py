"""Indexes of documents in SQLite, and their generations."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.backends.document_plan import id_range
from headwater.backends.sqlite.home import Home
from headwater.backends.sqlite.vectors.block_files import remove_unused
from headwater.backends.sqlite.vectors.document_writes import write_documents
from headwater.backends.sqlite.writer import Writer
from headwater.core.clock import Clock, from_micros
from headwater.model.indexes import Generation, IndexedDocument, IndexSpec, StoredDocument
from headwater.ports import DocumentWrite, Embedding, Hits, IndexVersion, VectorQuery

if TYPE_CHECKING:
    from headwater.backends.sqlite.vectors.search import VectorSearch
import sqlite3
from collections.abc import Iterable

from headwater.backends.sqlite.vectors import metadata_values, terms
from headwater.backends.sqlite.vectors.document_writes import SEQ_BITS
from headwater.errors import NotFoundError

_GENERATIONS = """
SELECT name, number, spec, state, created_at, activated_at, retired_at, generations.changed_at,
    documents, chunks,
    (SELECT count(*) FROM outdated_documents WHERE generation_id = generations.id)
FROM indexes JOIN generations ON index_id = indexes.id
WHERE {} AND state <> 'removed' ORDER BY name, number
"""
_OF_INDEX = _GENERATIONS.format("name = ?")
_OF_ALL = _GENERATIONS.format("name IS NOT NULL")
_WITH_SPEC = """
SELECT number FROM indexes JOIN generations ON index_id = indexes.id
WHERE name = ? AND spec = ? AND state IN ('active', 'building') ORDER BY number DESC LIMIT 1
"""
_INDEX = "SELECT id, changed_at, last_generation FROM indexes WHERE name = ?"
_ADD = """
INSERT INTO generations
    (index_id, number, spec, state, created_at, activated_at, changed_at)
VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id
"""
# Two statements that read indexes alone, not the texts.
_ALL_OUTDATED = """
INSERT INTO outdated_documents (generation_id, document, is_missing)
SELECT ?, document, 1 FROM documents WHERE index_id = ?
"""
_BUT_REMOVED = """
DELETE FROM outdated_documents WHERE generation_id = ?
    AND document IN (SELECT document FROM documents WHERE index_id = ? AND text IS NULL)
"""
_RETIRED = """
UPDATE generations SET state = 'retired', retired_at = ?
WHERE index_id = ? AND number < ? AND state IN ('active', 'building') RETURNING id
"""
_ACTIVATED = """
UPDATE generations SET state = 'active', activated_at = ?1, changed_at = ?1 WHERE id = ?2
"""
PORTION = 1_000
"""Rows that one transaction removes, so that other writers do not wait for long."""

# Read before a transaction is begun for it, because most times there is nothing to remove.
HAS_DROPPED = "SELECT EXISTS (SELECT 1 FROM indexes WHERE name IS NULL)"
HAS_OLD = """
SELECT EXISTS (
    SELECT 1 FROM indexes JOIN generations ON index_id = indexes.id
    WHERE name = ?1 AND (state = 'removed' OR state = 'retired' AND retired_at < ?2)
) OR EXISTS (
    SELECT 1 FROM indexes JOIN generations ON index_id = indexes.id
    CROSS JOIN chunks ON chunks.id >> 32 = +generations.id -- without affinity, for the index
    WHERE name = ?1 AND valid_to IS NOT NULL AND valid_to < ?2
) OR EXISTS (
    SELECT 1 FROM indexes JOIN documents ON index_id = indexes.id
    WHERE name = ?1 AND text IS NULL AND indexed_at < ?2
)
"""
_COUNT = """
SELECT (SELECT count(*) FROM documents WHERE index_id = ?1)
    - (SELECT count(*) FROM documents WHERE index_id = ?1 AND text IS NULL)
"""
_MARK_REMOVED = """
UPDATE generations SET state = 'removed'
WHERE index_id = ? AND state = 'retired' AND retired_at < ?
"""
_MARK_PRUNED = """
UPDATE generations SET pruned_before = max(pruned_before, ?) WHERE index_id = ?
"""
_ENDED = """
SELECT id, metadata_id, document_id FROM chunks
WHERE id >> 32 = ? AND valid_to IS NOT NULL AND valid_to < ? LIMIT ?
"""
_OF_GENERATION = """
SELECT id, metadata_id, document_id FROM chunks WHERE id BETWEEN ? AND ? LIMIT ?
"""
_REMOVE_TERMS = """
INSERT INTO chunk_terms (chunk_terms, rowid, terms)
SELECT 'delete', id, ?1 || replace(terms, ' ', ' ' || ?1) FROM chunk_contents
WHERE id = ?2 AND terms <> ''
"""
_IS_USED = """
SELECT EXISTS (SELECT 1 FROM chunks WHERE document_id = ?1 AND metadata_id = ?2)
    OR EXISTS (SELECT 1 FROM documents WHERE id = ?1 AND metadata_id = ?2)
"""
# A removed document has no current chunks: they ended when it was removed.
_GONE = """
SELECT id, metadata_id FROM documents
WHERE index_id = ? AND text IS NULL AND indexed_at < ? LIMIT ?
"""
_DROPPED = "SELECT id, metadata_id FROM documents WHERE index_id = ? LIMIT ?"
_encode_spec = msgspec.json.Encoder(order="deterministic").encode


def _generation(row: tuple[Any, ...]) -> Generation:
    name, number, spec, state, created, activated, retired, changed, *counts = row
    documents, chunks, outdated = counts
    return Generation(
        index=name,
        number=number,
        spec=_decode_spec(spec),
        state=state,
        created_at=from_micros(created),
        activated_at=None if activated is None else from_micros(activated),
        retired_at=None if retired is None else from_micros(retired),
        changed_at=None if changed == created else from_micros(changed),
        documents=documents,
        chunks=chunks,
        outdated=outdated,
    )


def create_generation(db: sqlite3.Connection, index: str, spec: IndexSpec, now: int) -> None:
    """Add a generation with this spec unless one is in use."""
    key = _encode_spec(spec)  # equal specs have equal forms
    if db.execute(_WITH_SPEC, (index, key)).fetchone():
        return
    db.execute(
        "INSERT OR IGNORE INTO indexes (name, changed_at, last_generation) VALUES (?, 0, 0)",
        (index,),
    )
    index_id, changed_at, last = db.execute(_INDEX, (index,)).fetchone()
    moment = max(now, changed_at + 1)
    in_use = "SELECT 1 FROM generations WHERE index_id = ? AND state = 'active'"
    is_first = db.execute(in_use, (index_id,)).fetchone() is None
    state, activated = ("active", moment) if is_first else ("building", None)
    row = (index_id, last + 1, key, state, moment, activated, moment)
    ((generation_id,),) = db.execute(_ADD, row).fetchall()
    for statement in (_ALL_OUTDATED, _BUT_REMOVED):
        db.execute(statement, (generation_id, index_id))
    db.execute(
        "UPDATE indexes SET changed_at = ?, last_generation = ? WHERE id = ?",
        (moment, last + 1, index_id),
    )


def activate_generation(db: sqlite3.Connection, index: str, number: int, now: int) -> int:
    """Make a generation the active one unless documents are outdated in it; return how many."""
    row = db.execute(
        "SELECT generations.id, state, indexes.id, indexes.changed_at FROM indexes"
        " JOIN generations ON index_id = indexes.id WHERE name = ? AND number = ?",
        (index, number),
    ).fetchone()
    if row is None or row[1] not in ("active", "building"):
        raise NotFoundError(
            f"index {index!r} has no generation {number} that is being built, so it cannot be "
            "activated; `headwater index status` lists the generations"
        )
    generation_id, state, index_id, changed_at = row
    count = "SELECT count(*) FROM outdated_documents WHERE generation_id = ?"
    ((outdated,),) = db.execute(count, (generation_id,)).fetchall()
    if outdated or state == "active":
        return int(outdated)
    moment = max(now, changed_at + 1)
    for (retired,) in db.execute(_RETIRED, (moment, index_id, number)).fetchall():
        db.execute("DELETE FROM outdated_documents WHERE generation_id = ?", (retired,))
    db.execute(_ACTIVATED, (moment, generation_id))
    db.execute("UPDATE indexes SET changed_at = ? WHERE id = ?", (moment, index_id))
    return 0


def drop_index(db: sqlite3.Connection, index: str, now: int) -> int:
    """Detach the contents of an index from its name; return its number of documents."""
    row = db.execute(_INDEX, (index,)).fetchone()
    if row is None:
        return 0
    index_id, changed_at, last = row
    ((documents,),) = db.execute(_COUNT, (index_id,)).fetchall()
    db.execute("UPDATE indexes SET name = NULL WHERE id = ?", (index_id,))
    db.execute(
        "INSERT INTO indexes (name, changed_at, last_generation) VALUES (?, ?, ?)",
        (index, max(now, changed_at + 1), last),
    )
    return int(documents)


def remove_dropped(db: sqlite3.Connection) -> bool:
    """Remove a portion of the contents of dropped indexes; return whether there may be more."""
    row = db.execute("SELECT id FROM indexes WHERE name IS NULL LIMIT 1").fetchone()
    if row is None:
        return False
    (index_id,) = row
    left = PORTION
    generations = "SELECT id FROM generations WHERE index_id = ?"
    for (id_,) in db.execute(generations, (index_id,)).fetchall():
        left -= _remove_generation(db, index_id, id_, left)
        if left <= 0:
            return True
    left -= _remove_documents(db, index_id, db.execute(_DROPPED, (index_id, left)).fetchall())
    if left > 0:
        db.execute("DELETE FROM indexes WHERE id = ?", (index_id,))
    return True


def remove_old(db: sqlite3.Connection, index: str, before: int) -> tuple[int, bool]:
    """Remove a portion of the chunks and generations that were replaced before a time.

    Return their number and whether there may be more.
    """
    row = db.execute(_INDEX, (index,)).fetchone()
    if row is None:
        return 0, False
    index_id = row[0]
    # Searches skip all of it from now on, although it is removed in portions.
    db.execute(_MARK_REMOVED, (index_id, before))
    db.execute(_MARK_PRUNED, (before, index_id))
    removed = 0
    generations = "SELECT id, state FROM generations WHERE index_id = ?"
    for id_, state in db.execute(generations, (index_id,)).fetchall():
        if state == "removed":
            removed += _remove_generation(db, index_id, id_, PORTION - removed)
        else:
            rows = db.execute(_ENDED, (id_, before, PORTION - removed)).fetchall()
            removed += _remove_chunks(db, index_id, id_, rows)
        if removed >= PORTION:
            return removed, True
    gone = db.execute(_GONE, (index_id, before, PORTION)).fetchall()
    return removed, _remove_documents(db, index_id, gone) == PORTION


def _remove_generation(db: sqlite3.Connection, index_id: int, id_: int, limit: int) -> int:
    """Remove up to ``limit`` chunks of a generation, and itself with the last one."""
    first, last = id_ << SEQ_BITS, ((id_ + 1) << SEQ_BITS) - 1
    rows = db.execute(_OF_GENERATION, (first, last, limit)).fetchall()
    if len(rows) < limit:
        db.execute("DELETE FROM outdated_documents WHERE generation_id = ?", (id_,))
        db.execute("DELETE FROM generations WHERE id = ?", (id_,))
    return _remove_chunks(db, index_id, id_, rows) + (len(rows) < limit)


def _remove_chunks(
    db: sqlite3.Connection, index_id: int, generation: int, rows: list[tuple[int, int, int]]
) -> int:
    ids = [(id_,) for id_, _, _ in rows]
    db.executemany(_REMOVE_TERMS, [(terms.prefix(generation), id_) for (id_,) in ids])
    for table in ("chunks", "chunk_contents", "chunk_embeddings"):
        db.executemany(f"DELETE FROM {table} WHERE id = ?", ids)
    _remove_unused(db, index_id, {(document, metadata) for _, metadata, document in rows})
    return len(rows)


def _remove_documents(db: sqlite3.Connection, index_id: int, rows: list[tuple[int, int]]) -> int:
    db.executemany("DELETE FROM documents WHERE id = ?", [(id_,) for id_, _ in rows])
    _remove_unused(db, index_id, rows)
    return len(rows)


def _remove_unused(db: sqlite3.Connection, index_id: int, pairs: Iterable[tuple[int, int]]) -> None:
    """Remove the metadata of documents unless it is the current one or that of a chunk."""
    for document_id, metadata_id in pairs:
        if db.execute(_IS_USED, (document_id, metadata_id)).fetchone()[0]:
            continue
        metadata = "DELETE FROM document_metadata WHERE id = ? RETURNING metadata"
        for (fields,) in db.execute(metadata, (metadata_id,)).fetchall():
            values = metadata_values.value_rows(index_id, metadata_id, msgspec.json.decode(fields))
            db.executemany(metadata_values.REMOVE, values)


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
_LISTED = """
documents.document, metadata, version, indexed_at,
CASE WHEN EXISTS (
    SELECT 1 FROM generations AS active JOIN outdated_documents AS waiting
    ON waiting.generation_id = active.id AND waiting.document = documents.document
    WHERE active.index_id = indexes.id AND active.state = 'active'
) THEN 'indexing' ELSE 'ready' END
"""
_STORED = f"text, {_LISTED}"
_DOCUMENTS = f"""
SELECT {_STORED} FROM indexes JOIN documents ON index_id = indexes.id
JOIN document_metadata ON document_metadata.id = metadata_id
WHERE name = ? AND document IN ({{}}) AND text IS NOT NULL
"""
_DOCUMENT_LIST = f"""
SELECT name, {_LISTED} FROM indexes JOIN documents ON index_id = indexes.id
JOIN document_metadata ON document_metadata.id = metadata_id
WHERE name = ? AND document >= ? AND document < ? AND text IS NOT NULL ORDER BY document LIMIT ?
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
        rows = self._home.read(_OF_ALL) if index is None else self._home.read(_OF_INDEX, (index,))
        return [_generation(row) for row in rows]

    async def create(self, index: str, spec: IndexSpec) -> Generation:
        while True:
            for generation in reversed(await self.generations(index)):
                if generation.spec == spec and generation.state != "retired":
                    return generation
            await self._writer.run(
                lambda db: create_generation(db, index, spec, self._clock.micros())
            )

    async def activate(self, index: str, generation: int) -> int:
        now = self._clock.micros()
        return await self._writer.run(lambda db: activate_generation(db, index, generation, now))

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

    async def list_documents(
        self, index: str, *, prefix: str = "", after: str, limit: int
    ) -> list[IndexedDocument]:
        arguments = (index, *id_range(prefix, after), limit)
        return [_listed(*row) for row in self._home.read(_DOCUMENT_LIST, arguments)]

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
        documents = await self._writer.run(lambda db: drop_index(db, index, now))
        await self._remove_dropped()
        return documents

    async def prune(self, index: str, before: int) -> int:
        pruned = 0
        has_more = bool(self._home.read(HAS_OLD, (index, before))[0][0])
        while has_more:
            removed, has_more = await self._writer.run(lambda db: remove_old(db, index, before))
            pruned += removed
        # A process that dropped an index may have ended before all of it was removed.
        if pruned or self._home.read(HAS_DROPPED)[0][0]:
            await self._remove_dropped()
        return pruned

    async def _remove_dropped(self) -> None:
        """Remove the contents of dropped indexes, and the files of chunks that are gone."""
        while await self._writer.run(remove_dropped):
            pass
        await asyncio.to_thread(remove_unused, self._home)


def _stored(row: tuple[Any, ...]) -> StoredDocument:
    text, document, metadata, version, indexed_at, status = row
    return StoredDocument(
        document, text, msgspec.json.decode(metadata), version, from_micros(indexed_at), status
    )


def _listed(
    index: str, document: str, metadata: bytes, version: int, indexed_at: int, status: Any
) -> IndexedDocument:
    return IndexedDocument(
        index=index,
        document=document,
        version=version,
        indexed_at=from_micros(indexed_at),
        metadata=msgspec.json.decode(metadata),
        status=status,
    )
