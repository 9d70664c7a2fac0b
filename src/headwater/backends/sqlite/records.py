"""Records of contexts in SQLite, byte for byte as sealed."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from datetime import datetime
from functools import partial
from secrets import token_hex
from typing import Any, NamedTuple, TypeVar

import msgspec

from headwater.backends.sqlite import bulk_insert as bulk
from headwater.backends.sqlite.home import Home
from headwater.backends.sqlite.writer import Writer, erasing
from headwater.core.clock import from_micros, to_micros
from headwater.errors import ImmutableRecordError, InvalidInputError
from headwater.errors.hints import quoted
from headwater.ports import (
    RecordQuery,
    RecordSummary,
    StoredRecord,
    is_storable,
    prefixed_column,
)

R = TypeVar("R", bound=RecordSummary)

_ALL = StoredRecord.__struct_fields__
_COLUMNS = ", ".join(_ALL)
_SUMMARY = ", ".join(RecordSummary.__struct_fields__)
_RECORDS = f"records ({_COLUMNS})"
_KEYS = "waiting_keys (key, created_at, context_id)"
_KNOWN = "SELECT context_id, record_hash FROM records WHERE context_id = ? OR record_hash = ?"
_ONE = f"SELECT {_COLUMNS} FROM records WHERE context_id = ?1 OR record_hash = ?1"
_CREATED_AT = "SELECT created_at FROM records WHERE context_id = ?"
_WITH_PREFIX = "SELECT context_id FROM records WHERE {0} >= ? AND {0} < ? ORDER BY {0} LIMIT ?"
# The keys determine the order, so that only listed records are read. The newest keys are still in
# waiting_keys.
_FIND_IN = "FROM {} WHERE key = ?1 AND (created_at, context_id) < (?2, ?3)"
_NEWEST = "ORDER BY created_at DESC, context_id DESC LIMIT ?4"
_FIND = f"""
SELECT {_SUMMARY} FROM (
    SELECT * FROM (
        SELECT created_at, context_id {_FIND_IN.format("record_keys")} {_NEWEST}
    )
    UNION SELECT created_at, context_id {_FIND_IN.format("waiting_keys")}
    {_NEWEST}
) CROSS JOIN records USING (created_at, context_id) {_NEWEST}
"""
_REDACT = """
UPDATE records SET disclosures = ?, redactions = ? WHERE context_id = ? AND redactions = ?
"""
_COUNT_OLD = "SELECT count(*) FROM records WHERE created_at < ?"
_REMOVE_OLD = """
DELETE FROM records WHERE context_id IN (
    SELECT context_id FROM records WHERE created_at < ? ORDER BY created_at LIMIT ?
)
"""
_REMOVE_WAITING_KEYS = "DELETE FROM waiting_keys WHERE created_at < ?"
# The keys are not sorted by time, so all of them are read, page by page.
_NEXT_KEYS = """
SELECT key, created_at, context_id FROM record_keys
WHERE (key, created_at, context_id) > (?, ?, ?) ORDER BY key, created_at, context_id LIMIT ?
"""
_REMOVE_KEY = "DELETE FROM record_keys WHERE key = ? AND created_at = ? AND context_id = ?"
# Small enough that other writers wait little.
_PAGE = 1_000
_RECORDS_PAGE = 200
_INDEX_KEY = "SELECT value FROM meta WHERE key = 'index_key'"
_MAKE_INDEX_KEY = "INSERT OR IGNORE INTO meta (key, value) VALUES ('index_key', ?)"
_INDEX_KEY_BYTES = 32
_UNLESS_KNOWN = "ON CONFLICT DO NOTHING"
_KEYS_PER_STATEMENT = 8
_LAST_CHARACTER = "\U0010ffff"
_NO_END = (2**63 - 1, "")


class _Append(NamedTuple):
    """A record to append."""

    record: StoredRecord
    row: tuple[Any, ...]
    keys: set[bytes]


class SqliteRecordLog:
    """The record log, read inline; concurrent appends share a commit in the writer thread."""

    def __init__(self, home: Home, writer: Writer) -> None:
        self._home = home
        self._writer = writer

    async def append(self, record: StoredRecord, keys: Collection[bytes]) -> None:
        # Checked here, so that an invalid record never reaches the writer thread.
        record.check()
        await self._writer.run_bulk(_append, _Append(record, _row(record), set(keys)))

    async def get(self, ref: str) -> StoredRecord | None:
        if not ref.isascii():
            return None
        rows = self._home.read(_ONE, (ref,))
        return _read(StoredRecord, rows[0]) if rows else None

    async def ids_beginning(self, prefix: str, limit: int) -> list[str]:
        if not prefix.isascii():
            return []
        sql = _WITH_PREFIX.format(prefixed_column(prefix))
        rows = self._home.read(sql, (prefix, prefix + _LAST_CHARACTER, limit))
        return [context_id for (context_id,) in rows]

    async def records(self, query: RecordQuery) -> list[RecordSummary]:
        # One bound instead of two: with two, SQLite would start each page at the wrong one.
        bound = self._position(query.before)
        if query.end is not None:
            bound = min(bound, (to_micros(query.end), ""))
        sql = f"SELECT {_SUMMARY} FROM records WHERE (created_at, context_id) < (?, ?)"
        arguments: list[str | int] = [*bound]
        if query.start is not None:
            sql += " AND created_at >= ?"
            arguments.append(to_micros(query.start))
        texts = {
            "name": query.name,
            "freshness_status": query.freshness_status,
            "caller": query.caller,
        }
        for column, value in texts.items():
            if value is not None:
                if not is_storable(value):
                    return []
                sql += f" AND {column} = ?"
                arguments.append(value)
        order = " ORDER BY created_at DESC, context_id DESC LIMIT ?"
        return self._summaries(sql + order, (*arguments, query.limit))

    async def find(
        self, key: bytes, *, before: str | None = None, limit: int = 100
    ) -> list[RecordSummary]:
        return self._summaries(_FIND, (key, *self._position(before), limit))

    def _summaries(self, sql: str, arguments: tuple[Any, ...]) -> list[RecordSummary]:
        return [_read(RecordSummary, row) for row in self._home.read(sql, arguments)]

    def _position(self, before: str | None) -> tuple[int, str]:
        """Return the position of a page: after the given record, or at the newest record."""
        if before is None:
            return _NO_END
        rows = before.isascii() and self._home.read(_CREATED_AT, (before,))
        if not rows:
            raise InvalidInputError(
                f"no record has the id {quoted(before)}, so the next page cannot be found; pass "
                "the id of the last record of the previous page"
            )
        return rows[0][0], before

    async def index_key(self) -> bytes:
        rows = self._home.read(_INDEX_KEY)
        if not rows:
            # If two processes create a key concurrently, the first one is kept.
            new_key = (token_hex(_INDEX_KEY_BYTES),)
            await self._writer.run(lambda db: db.execute(_MAKE_INDEX_KEY, new_key).rowcount)
            rows = self._home.read(_INDEX_KEY)
        return bytes.fromhex(rows[0][0])

    async def redact(
        self, context_id: str, *, expected: bytes, disclosures: bytes, redactions: bytes
    ) -> bool:
        if not context_id.isascii():
            return False

        def job(db: sqlite3.Connection) -> bool:
            with erasing(db):
                row = (disclosures, redactions, context_id, expected)
                return db.execute(_REDACT, row).rowcount == 1

        return await self._writer.run(job, erases=True)

    async def prune(self, before: datetime, *, dry_run: bool = False) -> int:
        moment = to_micros(before)
        if dry_run:
            count: int = self._home.read(_COUNT_OLD, (moment,))[0][0]
            return count
        removed = 0
        while page := await self._writer.run(partial(_remove_records, moment)):
            removed += page
        await self._remove_keys(moment)
        return removed

    async def _remove_keys(self, before: int) -> None:
        """Remove the keys of removed records, which are never found without their record."""
        await self._writer.run(
            lambda db: db.execute(_REMOVE_WAITING_KEYS, (before,)).rowcount, erases=True
        )
        last: tuple[bytes, int, str] = (b"", 0, "")
        while page := self._home.read(_NEXT_KEYS, (*last, _PAGE)):
            last = page[-1]
            old = [key for key in page if key[1] < before]
            if old:
                await self._writer.run(partial(_remove_keys, old))


def _remove_records(before: int, db: sqlite3.Connection) -> int:
    """Remove a page of the records from before a moment; return their number."""
    with erasing(db):
        return db.execute(_REMOVE_OLD, (before, _RECORDS_PAGE)).rowcount


def _remove_keys(keys: Sequence[tuple[bytes, int, str]], db: sqlite3.Connection) -> None:
    db.executemany(_REMOVE_KEY, keys)


def _append(items: Sequence[_Append], db: sqlite3.Connection) -> None:
    """Insert records and their keys; raise if one exists and differs, or one of many exists."""
    if bulk.insert(db, _RECORDS, [item.row for item in items], conflict=_UNLESS_KNOWN) < len(items):
        if len(items) > 1:
            raise ValueError("a record already exists; append one by one")
        _check_same(db, items[0].record)
        return
    keys = [
        (key, to_micros(item.record.created_at), item.record.context_id)
        for item in items
        for key in item.keys
    ]
    # Pad with copies of the last key, so that few prepared statements are enough.
    keys += keys[-1:] * (-len(keys) % _KEYS_PER_STATEMENT)
    bulk.insert(db, _KEYS, keys)


def _check_same(db: sqlite3.Connection, record: StoredRecord) -> None:
    identity = (record.context_id, record.record_hash)
    for context_id, record_hash in db.execute(_KNOWN, identity).fetchall():
        if (context_id, record_hash) != identity:
            raise ImmutableRecordError(context_id, record_hash, record.record_hash)


def _row(record: StoredRecord) -> tuple[Any, ...]:
    values = msgspec.structs.asdict(record)
    values["created_at"] = to_micros(record.created_at)
    return tuple(values[column] for column in _ALL)


def _read(kind: type[R], row: tuple[Any, ...]) -> R:
    values = dict(zip(kind.__struct_fields__, row, strict=True))
    values["created_at"] = from_micros(values["created_at"])
    return kind(**values)
