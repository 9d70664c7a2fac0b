"""The logs of sealed records and of administrative actions in Postgres."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from secrets import token_bytes
from typing import Any, NamedTuple

import asyncpg
import msgspec

from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.history_sql import pages_of
from headwater.backends.postgres.outcomes import PostgresOutcomes
from headwater.backends.postgres.pool import Postgres
from headwater.backends.postgres.replicas import ReplicaReads
from headwater.backends.postgres.shared_commits import SharedCommits
from headwater.backends.postgres.store_identity import StoreCheck
from headwater.backends.sql_lists import (
    NEWEST_FIRST,
    SUMMARY,
    ListOrder,
    SqlList,
    audit_entries,
    audit_list,
)
from headwater.core.clock import in_range
from headwater.errors import (
    ErasedMeanwhileError,
    ImmutableRecordError,
)
from headwater.model.admin import AuditEntry
from headwater.model.contexts import RecordSummary
from headwater.ports import AuditQuery, RecordQuery, StoredRecord, is_storable

_COLUMNS = StoredRecord.__struct_fields__
_ALL = ", ".join(_COLUMNS)
_TYPES = (
    *(*["text"] * 4, "timestamptz", "text", "text", "bigint", "text"),
    *(*["bigint"] * 4, *["boolean"] * 2, *["bytea"] * 5),
)
_KEYS = len(_TYPES) + 1
# An erasure locks the table of records, so a statement that comes after it sees it here.
_IS_CURRENT = "(SELECT coalesce(max(revision), 0) FROM _erasures) <= {checked}"
_REVISION = "SELECT coalesce(max(revision), 0) FROM _erasures"
# One statement, and so one transaction and one round trip. For a single new record, the common
# case, it takes two thirds of the time of _ADD_MANY.
_ADD = f"""
WITH added AS (
    INSERT INTO _records ({_ALL})
    SELECT {", ".join(f"${n}::{kind}" for n, kind in enumerate(_TYPES, 1))}
    WHERE {_IS_CURRENT.format(checked=f"${_KEYS + 1}")}
    RETURNING context_id
), found AS (
    INSERT INTO _record_keys (key, created_at, context_id) SELECT key, $5, context_id
    FROM added, unnest(${_KEYS}::bytea[]) AS key
)
SELECT count(*) FROM added
"""
# Records that exist already are skipped, and so are their keys.
_ADD_MANY = f"""
WITH added AS (
    INSERT INTO _records ({_ALL})
    SELECT * FROM unnest({", ".join(f"${n}::{kind}[]" for n, kind in enumerate(_TYPES, 1))})
    WHERE {_IS_CURRENT.format(checked=f"${_KEYS + 2}")}
    ON CONFLICT DO NOTHING
    RETURNING context_id, record_hash, created_at
), found AS (
    INSERT INTO _record_keys (key, created_at, context_id)
    SELECT key, created_at, context_id
    FROM unnest(${_KEYS}::text[], ${_KEYS + 1}::bytea[]) AS keys (record_hash, key)
    JOIN added USING (record_hash)
)
SELECT context_id, record_hash FROM added
"""
_EXISTING = """
SELECT context_id, record_hash FROM _records
WHERE context_id = ANY ($1::text[]) OR record_hash = ANY ($2::text[])
"""
_REDACT = """
UPDATE _records SET disclosures = $3, redactions = $4, is_redacted = true
WHERE context_id = $1 AND redactions = $2
RETURNING true
"""
_COUNT = "SELECT count(*) FROM _records WHERE created_at < $1"
# The records first: an append of an outcome holds its record, or finds it gone.
_PRUNE = """
DELETE FROM _records WHERE context_id IN (
    SELECT context_id FROM _records WHERE created_at < $1 ORDER BY created_at LIMIT $2
) RETURNING context_id
"""
_PRUNE_OUTCOMES = "DELETE FROM _outcomes WHERE context_id = ANY ($1::text[])"
# A key without its record is never found, so this need not be the same transaction.
_PRUNE_KEYS = """
DELETE FROM _record_keys WHERE {pages} AND created_at < $1
  AND NOT EXISTS (SELECT FROM _records AS r WHERE r.context_id = _record_keys.context_id)
"""
_INDEX_KEY = "SELECT index_key FROM _meta"
_MAKE_INDEX_KEY = "UPDATE _meta SET index_key = coalesce(index_key, $1) RETURNING index_key"
_INDEX_KEY_BYTES = 32
_MARKS = "SELECT record_marks FROM _meta"
_ADD_MARK = """
UPDATE _meta SET record_marks = array_append(record_marks, $1)
WHERE NOT $1 = ANY (record_marks)
"""
_PAGE = 500
# One range of an index for each interval; a single scan for all would have to sort.
_COUNT_IN_INTERVALS = """
SELECT (
    SELECT count(*) FROM (
        SELECT FROM {table} WHERE created_at >= first AND created_at < last{tests} LIMIT $3
    ) AS counted
)
FROM unnest($1::timestamptz[], $2::timestamptz[]) WITH ORDINALITY AS intervals (first, last, number)
ORDER BY number
"""
RECORDS = SqlList(SUMMARY, "_records", "created_at", "context_id")
_KEYED = SqlList("context_id", "_record_keys", "created_at", "context_id")
_ENTRIES = audit_list("_")
_ADD_ENTRY = "INSERT INTO _audit_log VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING"
_ADD_OUTCOME = "INSERT INTO _audit_outcomes VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING"


class _Lists:
    """The database as lists read it."""

    earliest = datetime.min.replace(tzinfo=UTC)
    latest = datetime.max.replace(tzinfo=UTC)
    stored = staticmethod(in_range)

    def __init__(self, reads: Postgres | ReplicaReads, store: StoreCheck | None = None) -> None:
        self._reads = reads
        self._store = store

    def time(self, stored: datetime) -> datetime:
        return stored

    async def rows(self, sql: str, *arguments: Any) -> list[asyncpg.Record]:
        if self._store is not None:
            self._store.raise_known_mismatch()
        return await self._reads.run(lambda connection: connection.fetch(sql, *arguments))


class _Append(NamedTuple):
    """A record to append."""

    record: StoredRecord
    keys: Collection[bytes]
    checked: int


class PostgresRecordLog(PostgresOutcomes):
    """A log of records in which concurrent appends share a transaction."""

    def __init__(
        self,
        writing: Postgres,
        postgres: Postgres,
        reads: Postgres | ReplicaReads,
        store: StoreCheck,
    ) -> None:
        super().__init__(_Lists(reads, store), writing, postgres, store)
        self._appends = SharedCommits(writing, _insert)
        self._index_key: bytes | None = None

    async def append(
        self, record: StoredRecord, keys: Collection[bytes], *, checked: int = 0
    ) -> None:
        self._check_same_store()
        record.check()
        size = len(record.core) + len(record.disclosures)
        await self._appends.write(_Append(record, set(keys), checked), size)

    async def close(self) -> None:
        """Wait for running appends for a limited time, then close the connection."""
        await self._appends.close()
        await self._outcome_appends.close()
        await self._writing_pool.close()

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
        return await self._summaries(records_found(order), *bounds, limit, key)

    async def count(self, query: RecordQuery, edges: Sequence[datetime], most: int) -> list[int]:
        texts = query.texts()
        if texts is None:
            return [0] * (len(edges) - 1)
        sql = count_where("_records", texts)
        return await self._counts(sql, edges, most, *texts.values())

    async def count_found(self, key: bytes, edges: Sequence[datetime], most: int) -> list[int]:
        return await self._counts(count_where("_record_keys", ["key"]), edges, most, key)

    async def _counts(self, sql: str, edges: Sequence[datetime], *arguments: object) -> list[int]:
        moments = [in_range(edge) for edge in edges]
        rows = await self._database.rows(sql, moments[:-1], moments[1:], *arguments)
        return [count for (count,) in rows]

    async def index_key(self) -> bytes:
        self._check_same_store()
        if self._index_key is None:
            self._index_key = await self._writing_pool.run(_index_key)
        return self._index_key

    async def add_mark(self, mark: bytes) -> None:
        self._check_same_store()
        await self._writing_pool.run(lambda connection: connection.execute(_ADD_MARK, mark))

    async def marks(self) -> set[bytes]:
        self._check_same_store()
        return set(await self._postgres.run(lambda connection: connection.fetchval(_MARKS)))

    async def redact(
        self, context_id: str, *, expected: bytes, disclosures: bytes, redactions: bytes
    ) -> bool:
        self._check_same_store()
        if not is_storable(context_id):
            return False

        async def update(connection: Connection) -> bool:
            row = (context_id, expected, disclosures, redactions)
            return await connection.fetchval(_REDACT, *row) is not None

        return await self._postgres.run(update)

    async def prune(self, before: datetime, *, dry_run: bool = False) -> int:
        self._check_same_store()
        end = in_range(before)
        if dry_run:
            return await self._postgres.run(lambda connection: connection.fetchval(_COUNT, end))
        return await self._postgres.run(partial(_prune, before=end))


async def _index_key(connection: Connection) -> bytes:
    # If two processes make a key at the same time, the first one wins.
    key: bytes = await connection.fetchval(_INDEX_KEY) or await connection.fetchval(
        _MAKE_INDEX_KEY, token_bytes(_INDEX_KEY_BYTES)
    )
    return key


async def _prune_page(connection: Connection, before: datetime) -> int:
    async with connection.transaction():
        removed = [context_id for (context_id,) in await connection.fetch(_PRUNE, before, _PAGE)]
        await connection.execute(_PRUNE_OUTCOMES, removed)
    return len(removed)


async def _prune(connection: Connection, before: datetime) -> int:
    """Delete records in portions, then the keys that have lost theirs."""
    count = 0
    while removed := await _prune_page(connection, before):
        count += removed
    for pages in await pages_of(connection, "_record_keys"):
        await connection.execute(_PRUNE_KEYS.format(pages=pages), before)
    return count


async def _is_added(connection: Connection, append: _Append) -> bool:
    """Insert one record; return False if its id or hash exists."""
    row = [getattr(append.record, column) for column in _COLUMNS]
    try:
        added = await connection.fetchval(_ADD, *row, list(append.keys), append.checked)
    except asyncpg.UniqueViolationError:
        return False
    if not added:
        raise ErasedMeanwhileError
    return True


async def _insert(
    connection: Connection, appends: Sequence[_Append]
) -> list[ImmutableRecordError | None]:
    existing = await _insert_new(connection, appends)
    return [_conflict(append.record, existing) for append in appends]


async def _insert_new(connection: Connection, appends: Sequence[_Append]) -> list[asyncpg.Record]:
    """Insert the new records; return ids and hashes of the existing ones that block the rest."""
    if len(appends) == 1 and await _is_added(connection, appends[0]):
        return []
    first: dict[str, _Append] = {}
    for append in appends:
        first.setdefault(append.record.record_hash, append)
    # Always in the same order, so that two processes with the same records cannot deadlock.
    ordered = sorted(first.values(), key=lambda append: append.record.context_id)
    columns = [[getattr(append.record, column) for append in ordered] for column in _COLUMNS]
    keys = [(append.record.record_hash, key) for append in ordered for key in append.keys]
    checked = min(append.checked for append in appends)
    added = await connection.fetch(
        _ADD_MANY, *columns, [owner for owner, _ in keys], [key for _, key in keys], checked
    )
    if not added and await connection.fetchval(_REVISION) > checked:
        raise ErasedMeanwhileError
    if len(added) == len(first):
        return []
    for row in added:
        del first[row["record_hash"]]
    ids = [append.record.context_id for append in first.values()]
    return await connection.fetch(_EXISTING, ids, list(first))


def _conflict(
    record: StoredRecord, existing: Sequence[asyncpg.Record]
) -> ImmutableRecordError | None:
    for context_id, record_hash in existing:
        if (context_id == record.context_id) != (record_hash == record.record_hash):
            return ImmutableRecordError(context_id, record_hash, record.record_hash)
    return None


def records_found(order: ListOrder = NEWEST_FIRST) -> str:
    """Return the query for a list of records with a key.

    The page is chosen by the keys alone, so that only the listed records are looked up.
    """
    page = _KEYED.sql(["key"], order)
    return f"""
        SELECT {SUMMARY} FROM ({page}) AS page JOIN _records USING (context_id)
        ORDER BY created_at {order.order}, context_id {order.order}
    """


def count_where(table: str, columns: Iterable[str]) -> str:
    """Return the query that counts rows with given values in columns, between edges."""
    tests = [f" AND {column} = ${number}" for number, column in enumerate(columns, 4)]
    return _COUNT_IN_INTERVALS.format(table=table, tests="".join(tests))


class PostgresAuditLog:
    """The audit log of a schema; entries of a store stay when another one adopts its history."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres
        self._lists = _Lists(postgres)

    async def append(self, entry: AuditEntry) -> None:
        async def add(connection: Connection) -> None:
            async with connection.transaction():
                await append_entry(connection, entry)

        await self._postgres.run(add)

    async def entries(self, query: AuditQuery) -> list[AuditEntry]:
        return await audit_entries(self._lists, _ENTRIES, query)


async def append_entry(connection: Connection, entry: AuditEntry) -> None:
    """Insert an entry and its outcome, unless they exist."""
    parameters = msgspec.json.encode(entry.parameters).decode()
    row = (entry.id, entry.at, entry.actor, entry.action, entry.target, parameters)
    await connection.execute(_ADD_ENTRY, *row)
    if entry.outcome != "started":
        outcome = (entry.id, entry.finished_at, entry.outcome, entry.error)
        await connection.execute(_ADD_OUTCOME, *outcome)
