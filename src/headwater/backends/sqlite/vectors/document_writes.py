"""Writes of documents: replace their chunks inside the caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from headwater.backends.document_plan import (
    CurrentChunk,
    DocumentPlan,
    DocumentState,
    plan_chunks,
    plan_document,
)
from headwater.backends.sqlite import bulk_insert as bulk
from headwater.backends.sqlite.vectors import metadata_values, terms
from headwater.core.codec import encode_custom
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
SELECT documents.id, metadata_id, metadata, text, version, indexed_at, as_of
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


class _DocumentRow(NamedTuple):
    """A stored document; the default is a new one. Without text, it was removed."""

    id: int = 0
    metadata_id: int = 0
    metadata: bytes = b""
    text: str | None = None
    version: int = 0
    indexed_at: int = 0
    as_of: int = 0

    @property
    def state(self) -> DocumentState | None:
        if not self.id:
            return None
        return DocumentState(self.version, self.indexed_at, self.as_of, self.text is None)


class _Target:
    """A generation in use, and the changes made to it by this transaction."""

    def __init__(self, id_: int, number: int, spec: bytes, last_seq: int) -> None:
        self.id = id_
        self.number = number
        self.first = id_ << SEQ_BITS
        self.last = self.first | ((1 << SEQ_BITS) - 1)
        self.last_seq = last_seq
        self.written_seq = last_seq
        self.dimensions = _decode_spec(spec).dimensions
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
        before = _DocumentRow(*row) if row else _DocumentRow()
        metadata = encode_metadata(write.metadata)
        is_same = before.text == write.text and before.metadata == metadata
        plan = plan_document(write, before.state, index.moment, is_same=is_same)
        if plan is None:
            return
        if plan.change == "removed":
            self._remove(index, write, before, plan)
        elif plan.change == "replaced":
            self._replace(index, write, before, plan, metadata)
        else:
            for target in index.targets:
                if target.number == write.generation:
                    self._put_chunks(index, target, write, before, plan)
            if plan.change == "confirmed":
                self._db.execute(_SET_AS_OF, (plan.as_of, before.id))

    def _replace(
        self,
        index: _Index,
        write: DocumentWrite,
        before: _DocumentRow,
        plan: DocumentPlan,
        metadata: bytes,
    ) -> None:
        index.is_changed = True
        metadata_id = before.metadata_id
        if before.metadata != metadata:
            metadata_id = self._add_metadata(index, metadata)
        row = (index.id, write.document, plan.version, metadata_id, plan.indexed_at, plan.as_of)
        put = self._db.execute(_PUT_DOCUMENT, (*row, write.cause, write.text))
        ((document_id,),) = put.fetchall()
        after = _DocumentRow(document_id, metadata_id, metadata)
        for target in index.targets:
            if target.number == write.generation:
                self._put_chunks(index, target, write, after, plan)
            else:
                self._outdated.append((target.id, write.document, int(plan.is_new)))

    def _add_metadata(self, index: _Index, metadata: bytes) -> int:
        inserted = self._db.execute(
            "INSERT INTO document_metadata (metadata) VALUES (?)", (metadata,)
        )
        metadata_id = inserted.lastrowid or 0
        fields: Mapping[str, Any] = _decode_metadata(metadata)
        self._values += metadata_values.value_rows(index.id, metadata_id, fields)
        return metadata_id

    def _put_chunks(
        self,
        index: _Index,
        target: _Target,
        write: DocumentWrite,
        document: _DocumentRow,
        plan: DocumentPlan,
    ) -> None:
        """Keep the chunks of a document that stay, end the others and add the new ones."""
        current: list[CurrentChunk] = []
        was_missing: bool | None = True
        if not plan.is_new:
            was_missing = self._take_outdated(target, write.document)
            ids = (document.id, target.first, target.last)
            current = [CurrentChunk(*row) for row in self._db.execute(_CURRENT, ids)]
        ended, added = plan_chunks(current, write.chunks, document.metadata, target.dimensions)
        has_version = was_missing is None and plan.change != "replaced"
        if has_version and not ended and not added:
            return
        self._db.executemany(_END, [(index.moment, chunk.seq) for chunk in ended])
        self._add_chunks(index, target, document, plan, added)
        target.documents += bool(was_missing)
        target.chunks += len(added) - len(ended)
        target.is_changed = index.is_changed = True

    def _take_outdated(self, target: _Target, document: str) -> bool | None:
        """Mark a document as up to date; return whether it was missing, None if it was current."""
        row = self._db.execute(_TAKE_OUTDATED, (target.id, document)).fetchone()
        return None if row is None else bool(row[0])

    def _add_chunks(
        self,
        index: _Index,
        target: _Target,
        document: _DocumentRow,
        plan: DocumentPlan,
        chunks: Sequence[IndexedChunk],
    ) -> None:
        for id_, chunk in enumerate(chunks, target.first + target.last_seq + 1):
            length = len(chunk.terms)
            self._chunks.append((id_, index.moment, length, document.metadata_id, document.id))
            version = (chunk.id, chunk.position, plan.version, plan.indexed_at)
            content = (chunk.content_hash, chunk.text, terms.joined(chunk.terms))
            self._contents.append((id_, *version, *content))
            self._embeddings.append((id_, chunk.embedding))
        target.last_seq += len(chunks)

    def _remove(
        self, index: _Index, write: DocumentWrite, before: _DocumentRow, plan: DocumentPlan
    ) -> None:
        index.is_changed = True
        self._db.execute(_REMOVE_DOCUMENT, (index.moment, plan.as_of, write.cause, before.id))
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
