"""Generations of indexes: create, activate, drop and prune, inside the caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import msgspec

from headwater.backends.sqlite import metadata_values, terms
from headwater.backends.sqlite.document_writes import SEQ_BITS
from headwater.core.clock import from_micros
from headwater.errors import InvalidInputError
from headwater.ports import Generation, IndexSpec

PORTION = 1_000
"""Chunks that one transaction removes, so that other writers do not wait for long."""

_GENERATIONS = """
SELECT name, number, spec, state, created_at, activated_at, retired_at, generations.changed_at,
    documents, chunks,
    (SELECT count(*) FROM outdated_documents WHERE generation_id = generations.id)
FROM indexes JOIN generations ON index_id = indexes.id
WHERE {} AND state <> 'removed' ORDER BY name, number
"""
OF_INDEX = _GENERATIONS.format("name = ?")
OF_ALL = _GENERATIONS.format("name IS NOT NULL")
WITH_SPEC = """
SELECT number FROM indexes JOIN generations ON index_id = indexes.id
WHERE name = ? AND spec = ? AND state IN ('active', 'building') ORDER BY number DESC LIMIT 1
"""
_INDEX = "SELECT id, changed_at, last_generation FROM indexes WHERE name = ?"
_ADD = """
INSERT INTO generations
    (index_id, number, spec, state, created_at, activated_at, changed_at)
VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id
"""
_ALL_OUTDATED = """
INSERT INTO outdated_documents (generation_id, document, is_missing)
SELECT ?, document, 1 FROM documents WHERE index_id = ? AND text IS NOT NULL
"""
_RETIRED = """
UPDATE generations SET state = 'retired', retired_at = ?
WHERE index_id = ? AND number < ? AND state IN ('active', 'building') RETURNING id
"""
_ACTIVATED = """
UPDATE generations SET state = 'active', activated_at = ?1, changed_at = ?1 WHERE id = ?2
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
_GONE = """
DELETE FROM documents WHERE index_id = ? AND text IS NULL AND indexed_at < ?
RETURNING id, metadata_id
"""
_UNUSED_METADATA = "DELETE FROM document_metadata WHERE id = ?"
_encode_spec = msgspec.json.Encoder(order="deterministic").encode
_decode_spec = msgspec.json.Decoder(IndexSpec).decode


def to_generation(row: tuple[Any, ...]) -> Generation:
    """Return a generation from a row of OF_INDEX or OF_ALL."""
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


def spec_key(spec: IndexSpec) -> bytes:
    """Return the stored form of a spec; equal specs have equal forms."""
    return _encode_spec(spec)


def create(db: sqlite3.Connection, index: str, spec: IndexSpec, now: int) -> None:
    """Add a generation with this spec unless one is in use."""
    if db.execute(WITH_SPEC, (index, spec_key(spec))).fetchone():
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
    row = (index_id, last + 1, spec_key(spec), state, moment, activated, moment)
    ((generation_id,),) = db.execute(_ADD, row).fetchall()
    db.execute(_ALL_OUTDATED, (generation_id, index_id))
    db.execute(
        "UPDATE indexes SET changed_at = ?, last_generation = ? WHERE id = ?",
        (moment, last + 1, index_id),
    )


def activate(db: sqlite3.Connection, index: str, number: int, now: int) -> int:
    """Make a generation the active one unless documents are outdated in it; return how many."""
    row = db.execute(
        "SELECT generations.id, state, indexes.id, indexes.changed_at FROM indexes"
        " JOIN generations ON index_id = indexes.id WHERE name = ? AND number = ?",
        (index, number),
    ).fetchone()
    if row is None or row[1] not in ("active", "building"):
        raise InvalidInputError(
            f"index {index!r} has no generation {number} that could be activated; "
            "`headwater index status` lists the generations"
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


def drop(db: sqlite3.Connection, index: str, now: int) -> int:
    """Detach the contents of an index from its name; return its number of documents."""
    row = db.execute(_INDEX, (index,)).fetchone()
    if row is None:
        return 0
    index_id, changed_at, last = row
    count = "SELECT count(*) FROM documents WHERE index_id = ? AND text IS NOT NULL"
    ((documents,),) = db.execute(count, (index_id,)).fetchall()
    db.execute("UPDATE indexes SET name = NULL WHERE id = ?", (index_id,))
    db.execute(
        "INSERT INTO indexes (name, changed_at, last_generation) VALUES (?, ?, ?)",
        (index, max(now, changed_at + 1), last),
    )
    return int(documents)


def prune(db: sqlite3.Connection, index: str, before: int) -> tuple[int, bool]:
    """Remove a portion of what was replaced; return its size and whether there may be more."""
    found = db.execute(_INDEX, (index,)).fetchone()
    if found is None:
        return 0, False
    # Searches skip all of it from now on, although it is removed in portions.
    db.execute(_MARK_REMOVED, (found[0], before))
    db.execute(_MARK_PRUNED, (before, found[0]))
    removed = 0
    generations = "SELECT id, state FROM generations WHERE index_id = ?"
    for id_, state in db.execute(generations, found[:1]).fetchall():
        if state == "removed":
            removed += _remove_generation(db, found[0], id_, PORTION - removed)
        else:
            rows = db.execute(_ENDED, (id_, before, PORTION - removed)).fetchall()
            removed += _remove_chunks(db, found[0], id_, rows)
        if removed >= PORTION:
            return removed, True
    # A removed document has no current chunks; those it had are gone if they ended this early.
    for document_id, metadata_id in db.execute(_GONE, (found[0], before)).fetchall():
        _remove_unused(db, found[0], document_id, metadata_id)
    return removed, False


def remove_dropped(db: sqlite3.Connection) -> bool:
    """Remove a portion of the contents of dropped indexes; return whether there may be more."""
    row = db.execute("SELECT id FROM indexes WHERE name IS NULL LIMIT 1").fetchone()
    if row is None:
        return False
    (index_id,) = row
    removed = 0
    generations = "SELECT id FROM generations WHERE index_id = ?"
    for (id_,) in db.execute(generations, (index_id,)).fetchall():
        removed += _remove_generation(db, index_id, id_, PORTION - removed)
        if removed >= PORTION:
            return True
    db.execute(
        "DELETE FROM document_metadata WHERE id IN"
        " (SELECT metadata_id FROM documents WHERE index_id = ?)",
        (index_id,),
    )
    db.execute("DELETE FROM metadata_values WHERE index_id = ?", (index_id,))
    db.execute("DELETE FROM documents WHERE index_id = ?", (index_id,))
    db.execute("DELETE FROM indexes WHERE id = ?", (index_id,))
    return True


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
    for document_id, metadata_id in sorted({(document, kept) for _, kept, document in rows}):
        _remove_unused(db, index_id, document_id, metadata_id)
    return len(rows)


def _remove_unused(
    db: sqlite3.Connection, index_id: int, document_id: int, metadata_id: int
) -> None:
    """Remove metadata unless it is that of the document or of one of its chunks."""
    if db.execute(_IS_USED, (document_id, metadata_id)).fetchone()[0]:
        return
    for row in _value_rows(db, index_id, metadata_id):
        db.execute(
            "DELETE FROM metadata_values WHERE index_id = ? AND field = ? AND kind = ?"
            " AND value = ? AND metadata_id = ? AND is_element = ?",
            row,
        )
    db.execute(_UNUSED_METADATA, (metadata_id,))


def _value_rows(
    db: sqlite3.Connection, index_id: int, metadata_id: int
) -> Iterator[metadata_values.ValueRow]:
    row = db.execute("SELECT metadata FROM document_metadata WHERE id = ?", (metadata_id,))
    for (metadata,) in row.fetchall():
        yield from metadata_values.value_rows(index_id, metadata_id, msgspec.json.decode(metadata))
