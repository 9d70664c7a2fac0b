"""Writes of documents: replace their chunks inside the caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from headwater.backends.sqlite import bulk_insert as bulk
from headwater.backends.sqlite.vectors import metadata_values, terms
from headwater.core.codec import encode_custom
from headwater.errors import InvalidInputError
from headwater.model.indexes import IndexSpec
from headwater.ports import DocumentWrite, IndexedChunk

SEQ_BITS = 32
"""The id of a chunk is the id of its generation, shifted by this, and its number in it."""

_CHUNKS = "chunks (id, valid_from, length, metadata_id, document_id)"
_CONTENTS = (
    "chunk_contents (id, chunk_id, position, version, indexed_at, content_hash, text, terms)"
)
_EMBEDDINGS = "chunk_embeddings (id, embedding)"
_OUTDATED = "outdated_documents (generation_id, document, is_missing)"

_INDEX = "SELECT id, changed_at FROM indexes WHERE name = ?"
_IN_USE = """
SELECT id, number, spec, last_seq FROM generations
WHERE index_id = ? AND state IN ('active', 'building')
"""
_DOCUMENT = """
SELECT documents.id, version, metadata_id, metadata, indexed_at, as_of, text
FROM documents JOIN document_metadata ON document_metadata.id = metadata_id
WHERE index_id = ? AND document = ?
"""
_PUT_DOCUMENT = """
INSERT INTO documents (index_id, document, version, metadata_id, indexed_at, as_of, cause, text)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (index_id, document) DO UPDATE
SET version = ?3, metadata_id = ?4, indexed_at = ?5, as_of = ?6, cause = ?7, text = ?8 RETURNING id
"""
_REMOVE_DOCUMENT = """
UPDATE documents SET indexed_at = ?, as_of = ?, cause = ?, text = NULL WHERE id = ?
"""
_SET_AS_OF = "UPDATE documents SET as_of = ? WHERE id = ?"
_TAKE_OUTDATED = """
DELETE FROM outdated_documents WHERE generation_id = ? AND document = ? RETURNING is_missing
"""
_CURRENT = """
SELECT chunks.id, chunk_id, position, metadata
FROM chunks CROSS JOIN chunk_contents USING (id)
CROSS JOIN document_metadata ON document_metadata.id = metadata_id
WHERE document_id = ? AND valid_to IS NULL AND chunks.id BETWEEN ? AND ?
"""
_END = "UPDATE chunks SET valid_to = ? WHERE id = ?"
_END_ALL = """
UPDATE chunks SET valid_to = ? WHERE document_id = ? AND valid_to IS NULL AND id BETWEEN ? AND ?
"""
# SQLite puts the generation in front of each term: it is faster at that than Python.
_ADD_TERMS = """
INSERT INTO chunk_terms (rowid, terms)
SELECT id, ?1 || replace(terms, ' ', ' ' || ?1) FROM chunk_contents
WHERE id BETWEEN ?2 AND ?3 AND terms <> ''
"""
_CHANGE_GENERATION = """
UPDATE generations SET changed_at = ?, last_seq = ?, documents = documents + ?,
    chunks = chunks + ? WHERE id = ?
"""

encode_metadata = msgspec.json.Encoder(enc_hook=encode_custom, order="deterministic").encode
_decode_metadata = msgspec.json.Decoder(dict[str, Any]).decode
_decode_spec = msgspec.json.Decoder(IndexSpec).decode


class _Document(NamedTuple):
    """The current version of a document; without text, it was removed."""

    id: int
    version: int
    metadata_id: int
    metadata: bytes
    indexed_at: int
    as_of: int
    text: str | None


class _Target:
    """A generation in use, and the changes made to it by this transaction."""

    def __init__(self, id_: int, number: int, spec: bytes, last_seq: int) -> None:
        self.id = id_
        self.number = number
        self.first = id_ << SEQ_BITS
        self.last = self.first | ((1 << SEQ_BITS) - 1)
        self.last_seq = last_seq
        self.written_seq = last_seq
        self.embedding_size = _decode_spec(spec).dimensions * 4
        self.documents = self.chunks = 0
        self.is_changed = False


class _Index:
    """An index, its generations in use, and the time of its changes in this transaction."""

    def __init__(self, id_: int, moment: int, targets: Sequence[_Target]) -> None:
        self.id = id_
        self.moment = moment
        self.targets = targets
        self.is_changed = False
        self.written: set[str] = set()


def write_documents(db: sqlite3.Connection, writes: Sequence[DocumentWrite], now: int) -> None:
    """Apply writes in their order; the caller's transaction makes them one."""
    _Application(db, now).apply(writes)


class _Application:
    """One application of writes; rows of chunks are collected and inserted together."""

    def __init__(self, db: sqlite3.Connection, now: int) -> None:
        self._db = db
        self._now = now
        self._indexes: dict[str, _Index | None] = {}
        self._chunks: list[tuple[Any, ...]] = []
        self._contents: list[tuple[Any, ...]] = []
        self._embeddings: list[tuple[int, bytes]] = []
        self._values: list[metadata_values.ValueRow] = []
        self._outdated: list[tuple[int, str, int]] = []

    def apply(self, writes: Sequence[DocumentWrite]) -> None:
        for write in writes:
            index = self._index(write.index)
            if index is None:
                continue
            if write.document in index.written:
                self._insert_rows()
            index.written.add(write.document)
            self._write(index, write)
        self._insert_rows()
        for index in self._indexes.values():
            if index is not None and index.is_changed:
                self._finish(index)

    def _index(self, name: str) -> _Index | None:
        if name not in self._indexes:
            row = self._db.execute(_INDEX, (name,)).fetchone()
            targets = row and [_Target(*target) for target in self._db.execute(_IN_USE, row[:1])]
            moment = row and max(self._now, row[1] + 1)
            self._indexes[name] = _Index(row[0], moment, targets) if targets else None
        return self._indexes[name]

    def _write(self, index: _Index, write: DocumentWrite) -> None:
        row = self._db.execute(_DOCUMENT, (index.id, write.document)).fetchone()
        before = _Document(*row) if row else None
        if write.version is not None:
            if before is not None and _is_version(before, write):
                self._fill(index, write, before)
        elif before is not None and write.is_late(before.as_of):
            return
        elif write.text is not None:
            self._replace(index, write, before, write.text)
        elif before is not None and before.text is not None:
            self._remove(index, write, before)

    def _replace(
        self, index: _Index, write: DocumentWrite, before: _Document | None, text: str
    ) -> None:
        metadata = encode_metadata(write.metadata)
        if before is not None and before.text == text and before.metadata == metadata:
            self._fill(index, write, before)
            if (as_of := _as_of(index, write, before)) > before.as_of:
                self._db.execute(_SET_AS_OF, (as_of, before.id))
            return
        index.is_changed = True
        is_new = before is None or before.text is None
        if before is not None and before.metadata == metadata:
            metadata_id = before.metadata_id
        else:
            metadata_id = self._add_metadata(index, metadata)
        version = before.version + 1 if before else 1
        as_of = _as_of(index, write, before)
        row = (index.id, write.document, version, metadata_id, index.moment, as_of)
        put = self._db.execute(_PUT_DOCUMENT, (*row, write.cause, text))
        ((document_id,),) = put.fetchall()
        after = _Document(document_id, version, metadata_id, metadata, index.moment, as_of, text)
        for target in index.targets:
            if target.number == write.generation:
                self._put_chunks(index, target, write, after, is_new=is_new)
            else:
                self._outdated.append((target.id, write.document, int(is_new)))

    def _add_metadata(self, index: _Index, metadata: bytes) -> int:
        inserted = self._db.execute(
            "INSERT INTO document_metadata (metadata) VALUES (?)", (metadata,)
        )
        metadata_id = inserted.lastrowid or 0
        fields: Mapping[str, Any] = _decode_metadata(metadata)
        self._values += metadata_values.value_rows(index.id, metadata_id, fields)
        return metadata_id

    def _fill(self, index: _Index, write: DocumentWrite, document: _Document) -> None:
        """Bring the generation of a write up to the current version of the document."""
        for target in index.targets:
            if target.number == write.generation:
                self._put_chunks(index, target, write, document, is_new=False)

    def _put_chunks(
        self,
        index: _Index,
        target: _Target,
        write: DocumentWrite,
        document: _Document,
        *,
        is_new: bool,
    ) -> None:
        """Keep the chunks of a document that stay, end the others and add the new ones."""
        added = {(chunk.id, chunk.position): chunk for chunk in write.chunks}
        was_missing: bool | None = True
        ended: list[int] = []
        if not is_new:
            was_missing = self._take_outdated(target, write.document)
            ended = self._ended(target, document, added)
            has_version = was_missing is None and document.indexed_at != index.moment
            if has_version and not ended and not added:
                return
        self._db.executemany(_END, [(index.moment, chunk_id) for chunk_id in ended])
        self._add_chunks(index, target, document, list(added.values()))
        target.documents += bool(was_missing)
        target.chunks -= len(ended)
        target.is_changed = index.is_changed = True

    def _take_outdated(self, target: _Target, document: str) -> bool | None:
        """Mark a document as up to date; return whether it was missing, None if it was current."""
        row = self._db.execute(_TAKE_OUTDATED, (target.id, document)).fetchone()
        return None if row is None else bool(row[0])

    def _ended(
        self, target: _Target, document: _Document, added: dict[tuple[str, int], IndexedChunk]
    ) -> list[int]:
        """Return the current chunks that end, and take the others out of the added ones."""
        ended = []
        rows = self._db.execute(_CURRENT, (document.id, target.first, target.last)).fetchall()
        for id_, chunk_id, position, metadata in rows:
            if metadata == document.metadata and (chunk_id, position) in added:
                del added[chunk_id, position]
            else:
                ended.append(id_)
        return ended

    def _add_chunks(
        self, index: _Index, target: _Target, document: _Document, chunks: Sequence[IndexedChunk]
    ) -> None:
        for id_, chunk in enumerate(chunks, target.first + target.last_seq + 1):
            if len(chunk.embedding) != target.embedding_size:
                raise _wrong_size(chunk, target.embedding_size)
            length = len(chunk.terms)
            self._chunks.append((id_, index.moment, length, document.metadata_id, document.id))
            self._contents.append(
                (
                    id_,
                    chunk.id,
                    chunk.position,
                    document.version,
                    document.indexed_at,
                    chunk.content_hash,
                    chunk.text,
                    terms.joined(chunk.terms),
                )
            )
            self._embeddings.append((id_, chunk.embedding))
        target.last_seq += len(chunks)
        target.chunks += len(chunks)

    def _remove(self, index: _Index, write: DocumentWrite, before: _Document) -> None:
        index.is_changed = True
        as_of = _as_of(index, write, before)
        self._db.execute(_REMOVE_DOCUMENT, (index.moment, as_of, write.cause, before.id))
        for target in index.targets:
            if not self._take_outdated(target, write.document):
                ids = (index.moment, before.id, target.first, target.last)
                target.chunks -= self._db.execute(_END_ALL, ids).rowcount
                target.documents -= 1
                target.is_changed = True

    def _insert_rows(self) -> None:
        """Insert the collected rows, before a document is written again and at the end."""
        bulk.insert(self._db, _CHUNKS, self._chunks)
        bulk.insert(self._db, _CONTENTS, self._contents)
        bulk.insert(self._db, _EMBEDDINGS, self._embeddings)
        bulk.insert(self._db, metadata_values.TABLE, self._values)
        bulk.insert(self._db, _OUTDATED, self._outdated, conflict="ON CONFLICT DO NOTHING")
        for rows in (self._chunks, self._contents, self._embeddings, self._values, self._outdated):
            rows.clear()
        for index in self._indexes.values():
            for target in index.targets if index is not None else ():
                if target.written_seq < target.last_seq:
                    ids = (target.first + target.written_seq + 1, target.first + target.last_seq)
                    self._db.execute(_ADD_TERMS, (terms.prefix(target.id), *ids))
                    target.written_seq = target.last_seq

    def _finish(self, index: _Index) -> None:
        self._db.execute("UPDATE indexes SET changed_at = ? WHERE id = ?", (index.moment, index.id))
        for target in index.targets:
            if target.is_changed:
                counts = (target.last_seq, target.documents, target.chunks)
                self._db.execute(_CHANGE_GENERATION, (index.moment, *counts, target.id))


def _as_of(index: _Index, write: DocumentWrite, before: _Document | None) -> int:
    """Return the time that a document is about after a write."""
    as_of = index.moment if write.as_of is None else write.as_of
    return as_of if before is None else max(as_of, before.as_of)


def _is_version(document: _Document, write: DocumentWrite) -> bool:
    """Return whether a write is of the current version of the document."""
    return (
        document.version == write.version
        and document.text == write.text
        and document.metadata == encode_metadata(write.metadata)
    )


def _wrong_size(chunk: IndexedChunk, expected: int) -> InvalidInputError:
    return InvalidInputError(
        f"the embedding of chunk {chunk.id!r} has {len(chunk.embedding) / 4:g} dimensions, but its "
        f"generation has {expected // 4}; embed it with the embedder of the generation"
    )
