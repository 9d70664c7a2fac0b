"""Records of contexts in SQLite, byte for byte as sealed, and of administrative actions."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import pairwise
from secrets import token_hex
from typing import Any, NamedTuple

import msgspec

from headwater.backends.sql_lists import (
    SUMMARY,
    SqlList,
    audit_entries,
    audit_list,
)
from headwater.backends.sqlite import bulk_insert as bulk
from headwater.backends.sqlite.erasures import SqliteErasures
from headwater.backends.sqlite.home import Home
from headwater.backends.sqlite.outcomes import SqliteOutcomes
from headwater.backends.sqlite.writer import Writer, erasing
from headwater.core.clock import from_micros, to_micros
from headwater.errors import ErasedMeanwhileError, ImmutableRecordError
from headwater.model.admin import AuditEntry
from headwater.model.contexts import RecordSummary
from headwater.ports import AuditQuery, RecordQuery, StoredRecord, is_storable

_ALL = StoredRecord.__struct_fields__
_CREATED_AT = _ALL.index("created_at")
_RECORDS = f"records ({', '.join(_ALL)})"
_KEYS = "waiting_keys (key, created_at, context_id)"
_SAME_ID_OR_HASH = (
    "SELECT context_id, record_hash FROM records WHERE context_id = ? OR record_hash = ?"
)
# The keys determine the order, so that only listed records are read. The newest keys are still in
# waiting_keys.
_FIND = f"""
SELECT {SUMMARY} FROM (
    SELECT * FROM ({{record_keys}}) UNION ALL SELECT * FROM ({{waiting_keys}})
) CROSS JOIN records USING (created_at, context_id)
ORDER BY created_at {{order}}, context_id {{order}} LIMIT $4
"""
# A key may be in waiting_keys several times, and is not in both tables.
_KEYED = {
    table: SqlList("DISTINCT created_at, context_id", table, "created_at", "context_id")
    for table in ("record_keys", "waiting_keys")
}
_COUNT = """
SELECT count(*) FROM (
    SELECT 1 FROM records WHERE created_at >= ? AND created_at < ? {tests} LIMIT ?
)
"""
_COUNT_FOUND = """
SELECT (SELECT count(*) FROM (
    SELECT 1 FROM record_keys WHERE key = ?1 AND created_at >= ?2 AND created_at < ?3 LIMIT ?4
)) + (
    SELECT count(DISTINCT context_id) FROM waiting_keys
    WHERE key = ?1 AND created_at >= ?2 AND created_at < ?3
)
"""
_REDACT = """
UPDATE records SET disclosures = ?, redactions = ?, is_redacted = 1
WHERE context_id = ? AND redactions = ?
"""
_COUNT_OLD = "SELECT count(*) FROM records WHERE created_at < ?"
_OLD = "SELECT context_id FROM records WHERE created_at < ? ORDER BY created_at, context_id LIMIT ?"
_REMOVE_OLD = tuple(
    f"DELETE FROM {table} WHERE context_id IN ({_OLD})" for table in ("outcomes", "records")
)
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
_MARK = "record_mark:"
_MARKS = f"SELECT substr(key, {len(_MARK) + 1}) FROM meta WHERE key LIKE '{_MARK}%'"
_ADD_MARK = "INSERT OR IGNORE INTO meta (key, value) VALUES (?, '')"
_UNLESS_KNOWN = "ON CONFLICT DO NOTHING"
_KEYS_PER_STATEMENT = 8
# A trigger ignores an entry or an outcome that exists.
_ADD_ENTRY = "INSERT INTO audit_log VALUES (?, ?, ?, ?, ?, ?)"
_ADD_OUTCOME = "INSERT INTO audit_outcomes VALUES (?, ?, ?, ?)"


class _Append(NamedTuple):
    """A record to append."""

    record: StoredRecord
    row: tuple[Any, ...]
    keys: set[bytes]
    checked: int


class _Lists:
    """The database as lists read it, inline."""

    earliest = -(2**63)
    latest = 2**63 - 1
    stored = staticmethod(to_micros)
    time = staticmethod(from_micros)

    def __init__(self, home: Home) -> None:
        self._home = home

    async def rows(self, sql: str, *arguments: Any) -> list[Any]:
        return self._home.read(sql.replace("$", "?"), arguments)


class SqliteRecordLog(SqliteOutcomes):
    """The record log, read inline; concurrent appends share a commit in the writer thread."""

    def __init__(self, home: Home, writer: Writer, erasures: SqliteErasures) -> None:
        super().__init__(_Lists(home), writer)
        self._home = home
        self._append_all = partial(_append, erasures)  # one object: the key of bulk writes

    async def append(
        self, record: StoredRecord, keys: Collection[bytes], *, checked: int = 0
    ) -> None:
        # Checked here, so that an invalid record never reaches the writer thread.
        record.check()
        await self._writer.run_bulk(
            self._append_all, _Append(record, _row(record), set(keys), checked)
        )

    async def find(
        self,
        key: bytes,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        before: str | None = None,
        oldest_first: bool = False,
        limit: int = 100,
    ) -> list[RecordSummary]:
        order, bounds = await self._list.bounds(
            self._database, start, end, before, oldest_first=oldest_first
        )
        keys = {name: keyed.sql(["key"], order) for name, keyed in _KEYED.items()}
        sql = _FIND.format(order=order.order, **keys)
        return await self._summaries(sql, *bounds, limit, key)

    async def count(self, query: RecordQuery, edges: Sequence[datetime], most: int) -> list[int]:
        texts = query.texts()
        if texts is None:
            return [0] * (len(edges) - 1)
        sql = _COUNT.format(tests="".join(f" AND {column} = ?" for column in texts))
        return await self._counts(
            sql, [(*interval, *texts.values(), most) for interval in _intervals(edges)]
        )

    async def count_found(self, key: bytes, edges: Sequence[datetime], most: int) -> list[int]:
        intervals = [(key, *interval, most) for interval in _intervals(edges)]
        return await self._counts(_COUNT_FOUND, intervals)

    async def _counts(self, sql: str, intervals: Sequence[tuple[Any, ...]]) -> list[int]:
        # In a thread: a million records take a tenth of a second.
        def count() -> list[int]:
            return [self._home.read(sql, interval)[0][0] for interval in intervals]

        return await asyncio.to_thread(count)

    async def index_key(self) -> bytes:
        rows = self._home.read(_INDEX_KEY)
        if not rows:
            # If two processes create a key concurrently, the first one is kept.
            new_key = (token_hex(_INDEX_KEY_BYTES),)
            await self._writer.run(lambda db: db.execute(_MAKE_INDEX_KEY, new_key).rowcount)
            rows = self._home.read(_INDEX_KEY)
        return bytes.fromhex(rows[0][0])

    async def add_mark(self, mark: bytes) -> None:
        if mark not in await self.marks():
            row = (_MARK + mark.hex(),)
            await self._writer.run(lambda db: db.execute(_ADD_MARK, row).rowcount)

    async def marks(self) -> set[bytes]:
        return {bytes.fromhex(mark) for (mark,) in self._home.read(_MARKS)}

    async def redact(
        self, context_id: str, *, expected: bytes, disclosures: bytes, redactions: bytes
    ) -> bool:
        if not is_storable(context_id):
            return False

        def job(db: sqlite3.Connection) -> bool:
            with erasing(db):
                row = (disclosures, redactions, context_id, expected)
                return db.execute(_REDACT, row).rowcount == 1

        return await self._writer.run(job, erases=True)

    async def prune(self, before: datetime, *, dry_run: bool = False) -> int:
        moment = to_micros(before)

        def remove_page(db: sqlite3.Connection) -> int:
            with erasing(db):
                # The outcomes first, because the records are found by time.
                removed = [db.execute(sql, (moment, _RECORDS_PAGE)).rowcount for sql in _REMOVE_OLD]
                return removed[-1]

        if dry_run:
            count: int = self._home.read(_COUNT_OLD, (moment,))[0][0]
            return count
        removed = 0
        while page := await self._writer.run(remove_page):
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


def _intervals(edges: Sequence[datetime]) -> Iterator[tuple[int, int]]:
    return pairwise(map(to_micros, edges))


def _remove_keys(keys: Sequence[tuple[bytes, int, str]], db: sqlite3.Connection) -> None:
    db.executemany(_REMOVE_KEY, keys)


def _append(erasures: SqliteErasures, items: Sequence[_Append], db: sqlite3.Connection) -> None:
    """Insert records and their keys; raise if one exists and differs, or one of many exists."""
    if erasures.current(db).revision > min(item.checked for item in items):
        raise ErasedMeanwhileError
    if bulk.insert(db, _RECORDS, [item.row for item in items], conflict=_UNLESS_KNOWN) < len(items):
        if len(items) > 1:
            raise ValueError("a record already exists; append one by one")
        _check_same(db, items[0].record)
        return
    keys = [
        (key, item.row[_CREATED_AT], item.record.context_id) for item in items for key in item.keys
    ]
    # Pad with copies of the last key, so that few prepared statements are enough.
    keys += keys[-1:] * (-len(keys) % _KEYS_PER_STATEMENT)
    bulk.insert(db, _KEYS, keys)


def _check_same(db: sqlite3.Connection, record: StoredRecord) -> None:
    identity = (record.context_id, record.record_hash)
    for context_id, record_hash in db.execute(_SAME_ID_OR_HASH, identity).fetchall():
        if (context_id, record_hash) != identity:
            raise ImmutableRecordError(context_id, record_hash, record.record_hash)


def _row(record: StoredRecord) -> tuple[Any, ...]:
    values = [*msgspec.structs.astuple(record)]
    values[_CREATED_AT] = to_micros(record.created_at)
    return tuple(values)


class SqliteAuditLog:
    """The audit log: two tables that only grow."""

    def __init__(self, home: Home, writer: Writer) -> None:
        self._lists = _Lists(home)
        self._writer = writer

    async def append(self, entry: AuditEntry) -> None:
        parameters = msgspec.json.encode(entry.parameters).decode()
        at = to_micros(entry.at)
        row = (entry.id, at, entry.actor, entry.action, entry.target, parameters)
        end = None if entry.finished_at is None else to_micros(entry.finished_at)

        def job(db: sqlite3.Connection) -> None:
            db.execute(_ADD_ENTRY, row)
            if entry.outcome != "started":
                db.execute(_ADD_OUTCOME, (entry.id, end, entry.outcome, entry.error))

        await self._writer.run(job)

    async def entries(self, query: AuditQuery) -> list[AuditEntry]:
        return await audit_entries(self._lists, audit_list(), query)
