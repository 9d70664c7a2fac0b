"""Generations of indexes: read, create and activate them."""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from headwater.core.clock import from_micros
from headwater.errors import NotFoundError
from headwater.model.indexes import Generation, IndexSpec

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
    for statement in (_ALL_OUTDATED, _BUT_REMOVED):
        db.execute(statement, (generation_id, index_id))
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
