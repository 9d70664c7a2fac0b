"""Records of contexts in SQLite, byte for byte as sealed."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import pairwise
from secrets import token_hex
from typing import Any, NamedTuple, TypeVar

import msgspec

from headwater.backends.sqlite import bulk_insert as bulk
from headwater.backends.sqlite.erasures import SqliteErasures
from headwater.backends.sqlite.home import Home
from headwater.backends.sqlite.writer import Writer, erasing
from headwater.core.clock import from_micros, to_micros
from headwater.errors import ErasedMeanwhileError, ImmutableRecordError, InvalidInputError
from headwater.errors.hints import quoted
from headwater.model.contexts import RecordSummary
from headwater.ports import HASH_PREFIX, RecordQuery, StoredRecord

R = TypeVar("R", bound=RecordSummary)

_ALL = StoredRecord.__struct_fields__
_COLUMNS = ", ".join(_ALL)
_SUMMARY = ", ".join(RecordSummary.__struct_fields__)
_RECORDS = f"records ({_COLUMNS})"
_KEYS = "waiting_keys (key, created_at, context_id)"
_KNOWN = "SELECT context_id, record_hash FROM records WHERE context_id = ? OR record_hash = ?"
_ONE = f"SELECT {_COLUMNS} FROM records WHERE context_id = ?1 OR record_hash = ?1"
_CREATED_AT = "SELECT created_at FROM records WHERE context_id = ?"
_WITH_PREFIX = f"""
SELECT {_SUMMARY} FROM records WHERE context_id >= ? AND context_id < ?
ORDER BY context_id DESC LIMIT ?
"""
# Only some, so that a short prefix does not collect all records.
_WITH_HASH = f"""
SELECT {_SUMMARY} FROM records WHERE context_id IN (
    SELECT context_id FROM records WHERE record_hash >= ? AND record_hash < ? LIMIT 10000
) AND context_id < ? ORDER BY context_id DESC LIMIT ?
"""
# The keys determine the order, so that only listed records are read. The newest keys are still in
# waiting_keys.
_FIND_IN = "FROM {table} WHERE key = ?1 AND (created_at, context_id) {after} (?2, ?3)"
_FIND_IN += " AND created_at {until} ?4"
_ORDER = "ORDER BY created_at {order}, context_id {order} LIMIT ?5"
_FIND = f"""
SELECT {_SUMMARY} FROM (
    SELECT * FROM (
        SELECT created_at, context_id {_FIND_IN.replace("{table}", "record_keys")} {_ORDER}
    )
    UNION SELECT created_at, context_id {_FIND_IN.replace("{table}", "waiting_keys")}
    {_ORDER}
) CROSS JOIN records USING (created_at, context_id) {_ORDER}
"""
_COUNT = """
SELECT count(*) FROM (
    SELECT 1 FROM records WHERE created_at >= ? AND created_at < ? {wanted} LIMIT ?
)
"""
# A key may be in waiting_keys several times, and is not in both tables.
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
_MARK = "record_mark:"
_MARKS = f"SELECT substr(key, {len(_MARK) + 1}) FROM meta WHERE key LIKE '{_MARK}%'"
_ADD_MARK = "INSERT OR IGNORE INTO meta (key, value) VALUES (?, '')"
_UNLESS_KNOWN = "ON CONFLICT DO NOTHING"
_KEYS_PER_STATEMENT = 8
_LAST_CHARACTER = "\U0010ffff"
_NO_END = (2**63 - 1, "")
_NO_START = (-(2**63), "")


class _Append(NamedTuple):
    """A record to append."""

    record: StoredRecord
    row: tuple[Any, ...]
    keys: set[bytes]
    checked: int


class _Order(NamedTuple):
    """The order of a list, the position that its page starts after, and its end."""

    after: str
    until: str
    order: str
    bounds: tuple[int, str, int]


class SqliteRecordLog:
    """The record log, read inline; concurrent appends share a commit in the writer thread."""

    def __init__(self, home: Home, writer: Writer, erasures: SqliteErasures) -> None:
        self._home = home
        self._writer = writer
        self._append_all = partial(_append, erasures)  # one object: the key of bulk writes

    async def append(
        self, record: StoredRecord, keys: Collection[bytes], *, checked: int = 0
    ) -> None:
        # Checked here, so that an invalid record never reaches the writer thread.
        record.check()
        await self._writer.run_bulk(
            self._append_all, _Append(record, _row(record), set(keys), checked)
        )

    async def get(self, ref: str) -> StoredRecord | None:
        if not ref.isascii():
            return None
        rows = self._home.read(_ONE, (ref,))
        return _read(StoredRecord, rows[0]) if rows else None

    async def beginning(
        self, prefix: str, *, before: str | None = None, limit: int = 100
    ) -> list[RecordSummary]:
        last = _LAST_CHARACTER if before is None else self._position(before)[1]
        if not prefix.isascii():
            return []
        end = prefix + _LAST_CHARACTER
        if prefix.startswith(HASH_PREFIX):
            return self._summaries(_WITH_HASH, (prefix, end, last, limit))
        return self._summaries(_WITH_PREFIX, (prefix, min(end, last), limit))

    async def records(self, query: RecordQuery) -> list[RecordSummary]:
        texts = query.texts()
        order = self._order(query.start, query.end, query.before, is_reversed=query.oldest_first)
        if texts is None:
            return []
        sql = f"SELECT {_SUMMARY} FROM records WHERE (created_at, context_id) {order.after} (?, ?)"
        sql += f" AND created_at {order.until} ? {_sql_tests(texts)}"
        sql += f" ORDER BY created_at {order.order}, context_id {order.order} LIMIT ?"
        return self._summaries(sql, (*order.bounds, *texts.values(), query.limit))

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
        order = self._order(start, end, before, is_reversed=oldest_first)
        sql = _FIND.format(after=order.after, until=order.until, order=order.order)
        return self._summaries(sql, (key, *order.bounds, limit))

    async def count(self, query: RecordQuery, edges: Sequence[datetime], most: int) -> list[int]:
        texts = query.texts()
        if texts is None:
            return [0] * (len(edges) - 1)
        sql = _COUNT.format(wanted=_sql_tests(texts))
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

    def _summaries(self, sql: str, arguments: tuple[Any, ...]) -> list[RecordSummary]:
        return [_read(RecordSummary, row) for row in self._home.read(sql, arguments)]

    def _order(
        self,
        start: datetime | None,
        end: datetime | None,
        before: str | None,
        *,
        is_reversed: bool,
    ) -> _Order:
        """Return the order of a list, where its page starts and where the list ends.

        The start of the page is one bound: with two, SQLite would start at the wrong one.
        """
        first = _NO_START if start is None else (to_micros(start), "")
        last = _NO_END if end is None else (to_micros(end), "")
        if is_reversed:
            page = first if before is None else max(first, self._position(before))
            return _Order(">", "<", "ASC", (*page, last[0]))
        page = last if before is None else min(last, self._position(before))
        return _Order("<", ">=", "DESC", (*page, first[0]))

    def _position(self, before: str) -> tuple[int, str]:
        """Return the position of a record in lists."""
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

    async def add_mark(self, mark: bytes) -> None:
        if mark not in await self.marks():
            row = (_MARK + mark.hex(),)
            await self._writer.run(lambda db: db.execute(_ADD_MARK, row).rowcount)

    async def marks(self) -> set[bytes]:
        return {bytes.fromhex(mark) for (mark,) in self._home.read(_MARKS)}

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


def _sql_tests(columns: Iterable[str]) -> str:
    return "".join(f" AND {column} = ?" for column in columns)


def _intervals(edges: Sequence[datetime]) -> Iterator[tuple[int, int]]:
    return pairwise(map(to_micros, edges))


def _remove_records(before: int, db: sqlite3.Connection) -> int:
    """Remove a page of the records from before a moment; return their number."""
    with erasing(db):
        return db.execute(_REMOVE_OLD, (before, _RECORDS_PAGE)).rowcount


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
    values["is_signed"] = bool(values["is_signed"])
    values["is_redacted"] = bool(values["is_redacted"])
    return kind(**values)
