"""Records of contexts in SQLite, byte for byte as they were sealed."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from datetime import datetime
from secrets import token_hex
from typing import Any, NamedTuple, TypeVar

import msgspec

from headwater.backends.sqlite import bulk_insert as bulk
from headwater.backends.sqlite.home import Home
from headwater.backends.sqlite.writer import Writer
from headwater.core.clock import from_micros, to_micros
from headwater.errors import ImmutableRecordError, InvalidInputError
from headwater.ports import RecordSummary, StoredRecord, is_storable

R = TypeVar("R", bound=RecordSummary)

_ALL = StoredRecord.__struct_fields__
_COLUMNS = ", ".join(_ALL)
_SUMMARY = ", ".join(RecordSummary.__struct_fields__)
_RECORDS = f"records ({_COLUMNS})"
_KEYS = "waiting_keys (key, created_at, context_id)"
_KNOWN = "SELECT context_id, record_hash FROM records WHERE context_id = ? OR record_hash = ?"
_ONE = f"SELECT {_COLUMNS} FROM records WHERE context_id = ?1 OR record_hash = ?1"
_MOMENT = "SELECT created_at FROM records WHERE context_id = ?"
_BEGINNING = (
    "SELECT context_id FROM records WHERE context_id >= ? AND context_id < ?"
    " ORDER BY context_id LIMIT ?"
)
# The keys decide the order, so that as many records are looked up as are listed. The last of them
# wait to be put in their places.
_FOUND_AMONG = "FROM {} WHERE key = ?1 AND (created_at, context_id) < (?2, ?3)"
_NEWEST = "ORDER BY created_at DESC, context_id DESC LIMIT ?4"
_FOUND = f"""
SELECT {_SUMMARY} FROM (
    SELECT * FROM (
        SELECT created_at, context_id {_FOUND_AMONG.format("record_keys")} {_NEWEST}
    )
    UNION SELECT created_at, context_id {_FOUND_AMONG.format("waiting_keys")}
    {_NEWEST}
) CROSS JOIN records USING (created_at, context_id) {_NEWEST}
"""
_REDACT = """
UPDATE records SET disclosures = ?, redactions = ? WHERE context_id = ? AND redactions = ?
"""
_INDEX_KEY = "SELECT value FROM meta WHERE key = 'index_key'"
_MAKE_INDEX_KEY = "INSERT OR IGNORE INTO meta (key, value) VALUES ('index_key', ?)"
_INDEX_KEY_BYTES = 32
_UNLESS_KNOWN = "ON CONFLICT DO NOTHING"
_KEYS_AT_ONCE = 8
_LAST_CHARACTER = "\U0010ffff"
_NO_END = (2**63 - 1, "")


class _Append(NamedTuple):
    """A record on its way."""

    record: StoredRecord
    row: tuple[Any, ...]
    keys: set[bytes]


class SqliteRecordLog:
    """Appends through the writer's thread, where they share a commit; reads inline."""

    def __init__(self, home: Home, writer: Writer) -> None:
        self._home = home
        self._writer = writer

    async def append(self, record: StoredRecord, keys: Collection[bytes]) -> None:
        # Here and not in the writer's thread, where it would be a mistake of ours.
        record.check()
        await self._writer.run_together(_keep, _Append(record, _row(record), set(keys)))

    async def get(self, ref: str) -> StoredRecord | None:
        if not ref.isascii():
            return None
        rows = self._home.read(_ONE, (ref,))
        return _read(StoredRecord, rows[0]) if rows else None

    async def ids_beginning(self, prefix: str, limit: int) -> list[str]:
        if not prefix.isascii():
            return []
        rows = self._home.read(_BEGINNING, (prefix, prefix + _LAST_CHARACTER, limit))
        return [context_id for (context_id,) in rows]

    async def records(
        self,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        name: str | None = None,
        freshness_status: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> list[RecordSummary]:
        # One bound and not two: SQLite would begin each page at the other one.
        bound = self._place(before)
        if end is not None:
            bound = min(bound, (to_micros(end), ""))
        sql = f"SELECT {_SUMMARY} FROM records WHERE (created_at, context_id) < (?, ?)"
        arguments: list[str | int] = [*bound]
        if start is not None:
            sql += " AND created_at >= ?"
            arguments.append(to_micros(start))
        for column, wanted in (("name", name), ("freshness_status", freshness_status)):
            if wanted is not None:
                if not is_storable(wanted):
                    return []
                sql += f" AND {column} = ?"
                arguments.append(wanted)
        order = " ORDER BY created_at DESC, context_id DESC LIMIT ?"
        return self._listed(sql + order, (*arguments, limit))

    async def find(
        self, key: bytes, *, before: str | None = None, limit: int = 100
    ) -> list[RecordSummary]:
        return self._listed(_FOUND, (key, *self._place(before), limit))

    def _listed(self, sql: str, arguments: tuple[Any, ...]) -> list[RecordSummary]:
        return [_read(RecordSummary, row) for row in self._home.read(sql, arguments)]

    def _place(self, before: str | None) -> tuple[int, str]:
        """Where a list goes on: at the end of all times, or at a record."""
        if before is None:
            return _NO_END
        rows = before.isascii() and self._home.read(_MOMENT, (before,))
        if not rows:
            raise InvalidInputError(
                f"no record has the id {before!r}, so no list goes on after it; pass the id of the "
                "last record of the list before"
            )
        return rows[0][0], before

    async def index_key(self) -> bytes:
        rows = self._home.read(_INDEX_KEY)
        if not rows:
            # Of two who make one, the first wins.
            own = (token_hex(_INDEX_KEY_BYTES),)
            await self._writer.run(lambda db: db.execute(_MAKE_INDEX_KEY, own).rowcount)
            rows = self._home.read(_INDEX_KEY)
        return bytes.fromhex(rows[0][0])

    async def redact(
        self, context_id: str, *, expected: bytes, disclosures: bytes, redactions: bytes
    ) -> bool:
        if not context_id.isascii():
            return False

        def job(db: sqlite3.Connection) -> bool:
            # What is erased must not stay in pages that are merely marked as free.
            db.execute("PRAGMA secure_delete = ON")
            try:
                row = (disclosures, redactions, context_id, expected)
                return db.execute(_REDACT, row).rowcount == 1
            finally:
                db.execute("PRAGMA secure_delete = OFF")

        return await self._writer.run(job, erases=True)


def _keep(items: Sequence[_Append], db: sqlite3.Connection) -> None:
    """Writes records and their keys; one that is known is left as it is, if it is the same."""
    if bulk.insert(db, _RECORDS, [own.row for own in items], conflict=_UNLESS_KNOWN) < len(items):
        if len(items) > 1:
            raise ValueError("one of them is known; each alone shows which")
        _check_same(db, items[0].record)
        return
    keys = [
        (key, to_micros(own.record.created_at), own.record.context_id)
        for own in items
        for key in own.keys
    ]
    # The last one again and again, so that few statements hold them all.
    keys += keys[-1:] * (-len(keys) % _KEYS_AT_ONCE)
    bulk.insert(db, _KEYS, keys)


def _check_same(db: sqlite3.Connection, record: StoredRecord) -> None:
    given = (record.context_id, record.record_hash)
    for context_id, record_hash in db.execute(_KNOWN, given).fetchall():
        if (context_id, record_hash) != given:
            raise ImmutableRecordError(context_id, record_hash, record.record_hash)


def _row(record: StoredRecord) -> tuple[Any, ...]:
    values = msgspec.structs.asdict(record)
    values["created_at"] = to_micros(record.created_at)
    return tuple(values[column] for column in _ALL)


def _read(kind: type[R], row: tuple[Any, ...]) -> R:
    values = dict(zip(kind.__struct_fields__, row, strict=True))
    values["created_at"] = from_micros(values["created_at"])
    return kind(**values)
