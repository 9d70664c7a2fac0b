"""Removing indexes, old chunks and old generations, in portions."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

import msgspec

from headwater.backends.sqlite.vectors import metadata_values, terms
from headwater.backends.sqlite.vectors.document_writes import SEQ_BITS

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
_INDEX = "SELECT id, changed_at, last_generation FROM indexes WHERE name = ?"
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
_DOCUMENTS = "SELECT id, metadata_id FROM documents WHERE index_id = ? LIMIT ?"


def drop(db: sqlite3.Connection, index: str, now: int) -> int:
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
    left -= _remove_documents(db, index_id, db.execute(_DOCUMENTS, (index_id, left)).fetchall())
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
