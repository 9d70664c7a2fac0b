"""Migrate the tables of an older home to those of schema.sql.

A table whose definition differs is written again: columns that both have are copied, and new ones
get a value that is computed from the row. So every earlier version is migrated in one step, also
one whose number stands for several definitions.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict

from headwater.backends.segment_files import checksum_of
from headwater.core.clock import from_micros
from headwater.errors import HomeError
from headwater.model.values import ServiceEvent
from headwater.ports import FileChecksum, event_content

# The definitions of a database, without the tables in which FTS5 keeps the terms of chunks.
_DEFINITIONS = """
SELECT type, name, sql FROM sqlite_master
WHERE sql IS NOT NULL AND name NOT GLOB 'sqlite_*' AND name NOT GLOB 'chunk_terms_*'
ORDER BY type = 'table' DESC, type = 'index' DESC, rootpage = 0, rowid
"""
# Sets of features without their code are of workers that have ended.
_LEFT_OUT = ("declared_sets", "workers")
# Ids were remembered without entity and content; where they were, no event had left the tail yet.
_SEEN = """
INSERT OR REPLACE INTO seen (event_id, entity_id, expires_at, content)
SELECT event_id, entity_id, expires_at, event_content(event_type, entity_id, payload, timestamp)
FROM events CROSS JOIN earlier_seen USING (event_id)
"""
_CORE = "json_extract(CAST(core AS TEXT), '$.{}')"
_KEYS = (
    """
CREATE TEMP TABLE keys_of AS
SELECT context_id, group_concat(hex(key), '') AS digits FROM (
    SELECT context_id, key FROM record_keys UNION SELECT context_id, key FROM waiting_keys
) GROUP BY context_id""",
    "CREATE INDEX temp.keys_by_context ON keys_of (context_id)",
)
# The value of each new column, from a row of the earlier table; others are NULL or their default.
_NEW_COLUMNS: Mapping[tuple[str, str], str] = {
    ("dead_letters", "consumer_group"): "'headwater_workers'",
    ("dead_letters", "entity_id"): "json_extract(CAST(event AS TEXT), '$.entity_id')",
    ("documents", "as_of"): "indexed_at",
    ("records", "caller"): _CORE.format("caller"),
    ("records", "assembly_us"): _CORE.format("timing.assembly_us"),
    ("records", "model"): _CORE.format("policy.model"),
    ("records", "tokens"): _CORE.format("output.tokens"),
    ("records", "max_tokens"): _CORE.format("policy.max_tokens"),
    ("records", "cost_nano_usd"): _CORE.format("output.cost_nano_usd"),
    ("records", "items_dropped"): _CORE.format("output.items_dropped"),
    ("records", "is_signed"): "signature IS NOT NULL",
    ("records", "is_redacted"): "CAST(redactions AS TEXT) <> '[]'",
    ("records", "keys"): (
        "unhexed(coalesce((SELECT digits FROM keys_of"
        " WHERE keys_of.context_id = earlier_records.context_id), ''))"
    ),
    ("segments", "size"): "file_size(name)",
    ("segments", "ending"): "file_ending(name)",
    ("segments", "digest"): "file_digest(name)",
}


def migrate(db: sqlite3.Connection, home: Path, schema: str, version: int) -> None:
    """Replace the tables that differ from the schema; all of them, or none if this fails."""
    with closing(sqlite3.connect(":memory:")) as empty:
        empty.executescript(schema)
        today = definitions(empty)
    db.create_function("unhexed", 1, bytes.fromhex)
    db.create_function("event_content", 4, _event_content)
    for column, value in _checksums(home / "segments").items():
        db.create_function(f"file_{column}", 1, value)
    db.execute("BEGIN IMMEDIATE")
    _check_segments(db, home)
    before = definitions(db)
    for (kind, name), sql in before.items():
        # Triggers must not see the rows that are copied.
        if kind == "trigger" or (kind != "table" and today.get((kind, name)) != sql):
            db.execute(f'DROP {kind} "{name}"')
    tables = {name: sql for (kind, name), sql in today.items() if kind == "table"}
    for name, sql in tables.items():
        if ("table", name) not in before:
            db.execute(sql)
    for name, sql in tables.items():
        if before.get(("table", name), sql) != sql:
            _replace(db, name, sql)
    present = definitions(db)
    for definition, sql in today.items():
        if definition not in present:
            db.execute(sql)
    _set_sequence(db, "history", 0)
    db.execute(f"PRAGMA user_version = {version}")
    db.execute("COMMIT")


def definitions(db: sqlite3.Connection) -> dict[tuple[str, str], str]:
    """Return the statements that create tables, indexes and triggers, on one line each."""
    return {
        (kind, name): " ".join(re.sub("--.*", "", sql).split())
        for kind, name, sql in db.execute(_DEFINITIONS)
    }


def _event_content(event_type: str, entity_id: str, payload: bytes, at: int) -> bytes:
    return event_content(
        ServiceEvent(event_type, entity_id, msgspec.json.decode(payload), from_micros(at))
    )


def _checksums(folder: Path) -> dict[str, Callable[[str], int | bytes | None]]:
    """Return a function for each part of a segment's checksum; a missing file has none."""

    @cache
    def parts(name: str) -> dict[str, Any]:
        try:
            return asdict(checksum_of(folder / name))
        except FileNotFoundError:
            return {}

    def part(field: str) -> Callable[[str], int | bytes | None]:
        return lambda name: parts(name).get(field)

    return {field: part(field) for field in FileChecksum.__struct_fields__}


def _check_segments(db: sqlite3.Connection, home: Path) -> None:
    """Raise HomeError if there are segments from before their rows had the bucket of the entity."""
    has_segments = db.execute("SELECT * FROM segments LIMIT 1").fetchone() is not None
    if has_segments and "first_bucket" not in _columns(db, "segments"):
        raise HomeError(
            str(home),
            "has segments of a Headwater from before 16 November 2026, which cannot be migrated",
            "read it with that version, or set HEADWATER_HOME to another folder; nothing was "
            "changed",
        )


def _replace(db: sqlite3.Connection, table: str, sql: str) -> None:
    earlier = f"earlier_{table}"
    db.execute(f"ALTER TABLE {table} RENAME TO {earlier}")
    db.execute(sql)
    kept = _columns(db, earlier)
    if table == "records" and "keys" not in kept:
        for statement in _KEYS:
            db.execute(statement)
    new = {column: value for (name, column), value in _NEW_COLUMNS.items() if name == table}
    values = new | {column: column for column in kept}
    columns = [column for column in _columns(db, table) if column in values]
    if table == "seen":
        db.execute(_SEEN)
    elif table not in _LEFT_OUT:
        db.execute(
            f"INSERT INTO {table} ({', '.join(columns)})"
            f" SELECT {', '.join(values[column] for column in columns)} FROM {earlier}"
        )
    for (last,) in db.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (earlier,)):
        _set_sequence(db, table, last)
    db.execute(f"DROP TABLE {earlier}")


def _columns(db: sqlite3.Connection, table: str) -> list[str]:
    return [name for (name,) in db.execute("SELECT name FROM pragma_table_info(?)", (table,))]


def _set_sequence(db: sqlite3.Connection, table: str, last: int) -> None:
    """Let new rows have numbers above one that was given."""
    if not db.execute(
        "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?", (last, table)
    ).rowcount:
        db.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, last))
