"""Records of contexts in Postgres, byte for byte as they were sealed."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from secrets import token_bytes

import asyncpg

from headwater.backends.postgres.dedicated_connection import DedicatedConnection
from headwater.backends.postgres.errors import OF_ONE_ROW
from headwater.backends.postgres.pool import Connection, Postgres
from headwater.backends.postgres.store_identity import StoreCheck
from headwater.core.clock import from_micros, to_micros
from headwater.errors import ClosedError, HeadwaterError, ImmutableRecordError, InvalidInputError
from headwater.ports import RecordSummary, StoredRecord, is_storable

_COLUMNS = StoredRecord.__struct_fields__
_ALL = ", ".join(_COLUMNS)
_SUMMARY = ", ".join(RecordSummary.__struct_fields__)
_TYPES = (*["text"] * 4, "timestamptz", "text", *["bytea"] * 4)

# One statement, and so one transaction and one round trip. For a single record, which is new as
# nearly all are, it takes two thirds of the time of the other.
_ADD = f"""
WITH kept AS (
    INSERT INTO _records ({_ALL}) VALUES ({", ".join(f"${n}" for n, _ in enumerate(_TYPES, 1))})
)
INSERT INTO _record_keys (key, created_at, context_id) SELECT key, $5, $1
FROM unnest($11::bytea[]) AS key
"""
# What is known already is left out, and its keys with it.
_KEEP = f"""
WITH kept AS (
    INSERT INTO _records ({_ALL})
    SELECT * FROM unnest({", ".join(f"${n}::{kind}[]" for n, kind in enumerate(_TYPES, 1))})
    ON CONFLICT DO NOTHING
    RETURNING context_id, record_hash, created_at
), found AS (
    INSERT INTO _record_keys (key, created_at, context_id)
    SELECT key, created_at, context_id
    FROM unnest($11::text[], $12::bytea[]) AS given (record_hash, key) JOIN kept USING (record_hash)
)
SELECT context_id, record_hash FROM kept
"""
_KNOWN = """
SELECT context_id, record_hash FROM _records
WHERE context_id = ANY ($1::text[]) OR record_hash = ANY ($2::text[])
"""
_ONE = f"SELECT {_ALL} FROM _records WHERE context_id = $1 OR record_hash = $1"
_BEGINNING = (
    "SELECT context_id FROM _records WHERE context_id >= $1 AND context_id < $2"
    " ORDER BY context_id LIMIT $3"
)
_LIST = """
SELECT {columns} FROM {table} WHERE (created_at, context_id) < ($1, $2) AND {wanted}
ORDER BY created_at DESC, context_id DESC LIMIT $3
"""
# The keys decide which ones they are, so that no more records are looked up than are listed.
FIND = f"""
SELECT {_SUMMARY} FROM ({
    _LIST.format(columns="context_id", table="_record_keys", wanted="key = $4")
}) AS page JOIN _records USING (context_id)
ORDER BY created_at DESC, context_id DESC
"""
_MOMENT = "SELECT created_at FROM _records WHERE context_id = $1"
_REDACT = """
UPDATE _records SET disclosures = $3, redactions = $4 WHERE context_id = $1 AND redactions = $2
RETURNING true
"""
_INDEX_KEY = "SELECT index_key FROM _meta"
_MAKE_INDEX_KEY = "UPDATE _meta SET index_key = coalesce(index_key, $1) RETURNING index_key"
_INDEX_KEY_BYTES = 32
_LAST_CHARACTER = "\U0010ffff"
_NO_END = (datetime.max.replace(tzinfo=UTC), _LAST_CHARACTER)
_FIRST_MICROS = to_micros(datetime.min.replace(tzinfo=UTC))
_LAST_MICROS = to_micros(datetime.max.replace(tzinfo=UTC))
_CLOSING_SECONDS = 10.0

RECORDS_AT_ONCE = 500
# Far below the gigabyte that Postgres takes at once.
BYTES_AT_ONCE = 16 << 20


class _Append:
    """A record on its way, and whether it was kept or why it was refused."""

    def __init__(self, record: StoredRecord, keys: Collection[bytes]) -> None:
        self.record = record
        self.keys = set(keys)
        self.size = len(record.core) + len(record.disclosures)
        self.answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(self, refused: HeadwaterError | None) -> None:
        """Answers whoever still waits."""
        if self.answer.done():
            return
        if refused is None:
            self.answer.set_result(None)
        else:
            self.answer.set_exception(refused)


class PostgresRecordLog:
    """Appends that come while a commit is under way share the next one."""

    def __init__(self, line: DedicatedConnection, postgres: Postgres, store: StoreCheck) -> None:
        self._line = line
        self._postgres = postgres
        self._check_same_store = store.raise_known_mismatch
        self._waiting: list[_Append] = []
        self._writing: asyncio.Task[None] | None = None
        self._index_key: bytes | None = None

    async def append(self, record: StoredRecord, keys: Collection[bytes]) -> None:
        self._check_same_store()
        record.check()
        own = _Append(record, keys)
        self._waiting.append(own)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        # Who gives up does not stop the work of the others.
        await own.answer

    async def close(self) -> None:
        """Waits for what is being appended, if that ends soon."""
        if self._writing is not None:
            _, late = await asyncio.wait([self._writing], timeout=_CLOSING_SECONDS)
            for task in late:
                task.cancel()
                await asyncio.wait([task])
        await self._line.close()

    async def _write(self) -> None:
        waiting: list[_Append] = []
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, []
                for portion in _portions(waiting):
                    await self._keep(portion)
        finally:
            # Only the end of the store, or a mistake of ours, leaves anybody without an answer.
            ended = ClosedError("this store was closed while the record was on its way")
            for own in (*waiting, *self._waiting):
                own.settle(ended)
            self._waiting, self._writing = [], None

    async def _keep(self, appends: Sequence[_Append]) -> None:
        try:
            known = await self._line.run(partial(_insert, appends=appends))
        except HeadwaterError as error:
            if len(appends) > 1 and isinstance(error.__cause__, OF_ONE_ROW):
                # One that cannot be kept takes none of the others with it.
                middle = len(appends) // 2
                await self._keep(appends[:middle])
                await self._keep(appends[middle:])
            else:
                for own in appends:
                    own.settle(error)
        else:
            for own in appends:
                own.settle(_clash(own.record, known))

    async def get(self, ref: str) -> StoredRecord | None:
        self._check_same_store()
        if not _could_be(ref):
            return None
        row = await self._postgres.run(lambda connection: connection.fetchrow(_ONE, ref))
        return None if row is None else StoredRecord(**dict(row))

    async def ids_beginning(self, prefix: str, limit: int) -> list[str]:
        self._check_same_store()
        if not _could_be(prefix):
            return []
        rows = await self._postgres.run(
            lambda connection: connection.fetch(_BEGINNING, prefix, prefix + _LAST_CHARACTER, limit)
        )
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
        # One bound and not two: Postgres may begin each page at the other one.
        bound = await self._place(before)
        if end is not None:
            bound = min(bound, (_utc(end), ""))
        wanted = {"created_at >=": start and _utc(start), "name =": name}
        wanted |= {"freshness_status =": freshness_status}
        given = {test: value for test, value in wanted.items() if value is not None}
        if not all(is_storable(text) for text in (name, freshness_status) if text is not None):
            return []
        return await self._listed(records_where(given), *bound, limit, *given.values())

    async def find(
        self, key: bytes, *, before: str | None = None, limit: int = 100
    ) -> list[RecordSummary]:
        return await self._listed(FIND, *await self._place(before), limit, key)

    async def _listed(self, sql: str, *arguments: object) -> list[RecordSummary]:
        self._check_same_store()
        rows = await self._postgres.run(lambda connection: connection.fetch(sql, *arguments))
        return [RecordSummary(**dict(row)) for row in rows]

    async def _place(self, before: str | None) -> tuple[datetime, str]:
        """Where a list goes on: at the end of all times, or at a record."""
        if before is None:
            return _NO_END
        created_at = None
        if _could_be(before):
            created_at = await self._postgres.run(
                lambda connection: connection.fetchval(_MOMENT, before)
            )
        if created_at is None:
            raise InvalidInputError(
                f"no record has the id {before!r}, so no list goes on after it; pass the id of the "
                "last record of the list before"
            )
        return created_at, before

    async def index_key(self) -> bytes:
        self._check_same_store()
        if self._index_key is None:
            self._index_key = await self._line.run(_index_key)
        return self._index_key

    async def redact(
        self, context_id: str, *, expected: bytes, disclosures: bytes, redactions: bytes
    ) -> bool:
        self._check_same_store()
        if not _could_be(context_id):
            return False

        async def update(connection: Connection) -> bool:
            row = (context_id, expected, disclosures, redactions)
            return await connection.fetchval(_REDACT, *row) is not None

        return await self._postgres.run(update)


def records_where(tests: Iterable[str]) -> str:
    """The list of those records that pass some tests, such as ``name =``."""
    wanted = [f"{test} ${number}" for number, test in enumerate(tests, 4)]
    return _LIST.format(columns=_SUMMARY, table="_records", wanted=" AND ".join(wanted) or "true")


async def _index_key(connection: Connection) -> bytes:
    # Of two who make one, the first wins.
    found: bytes = await connection.fetchval(_INDEX_KEY) or await connection.fetchval(
        _MAKE_INDEX_KEY, token_bytes(_INDEX_KEY_BYTES)
    )
    return found


async def _added(connection: Connection, own: _Append) -> bool:
    """Keeps one record, if nothing is in its way."""
    row = [getattr(own.record, column) for column in _COLUMNS]
    try:
        await connection.execute(_ADD, *row, list(own.keys))
    except asyncpg.UniqueViolationError:
        return False
    return True


async def _insert(connection: Connection, appends: Sequence[_Append]) -> list[asyncpg.Record]:
    """Keeps what is new; gives the ids and hashes of what was in the way of the rest."""
    if len(appends) == 1 and await _added(connection, appends[0]):
        return []
    first: dict[str, _Append] = {}
    for own in appends:
        first.setdefault(own.record.record_hash, own)
    # In one order, so that two processes with the same records do not wait for each other.
    ordered = sorted(first.values(), key=lambda own: own.record.context_id)
    columns = [[getattr(own.record, column) for own in ordered] for column in _COLUMNS]
    keys = [(own.record.record_hash, key) for own in ordered for key in own.keys]
    kept = await connection.fetch(
        _KEEP, *columns, [owner for owner, _ in keys], [key for _, key in keys]
    )
    if len(kept) == len(first):
        return []
    for row in kept:
        del first[row["record_hash"]]
    ids = [own.record.context_id for own in first.values()]
    return await connection.fetch(_KNOWN, ids, list(first))


def _clash(record: StoredRecord, known: Sequence[asyncpg.Record]) -> ImmutableRecordError | None:
    given = (record.context_id, record.record_hash)
    for context_id, record_hash in known:
        if (context_id == given[0]) != (record_hash == given[1]):
            return ImmutableRecordError(context_id, record_hash, record.record_hash)
    return None


def _portions(appends: Sequence[_Append]) -> Iterator[list[_Append]]:
    portion: list[_Append] = []
    size = 0
    for own in appends:
        if own.answer.done():
            continue  # it was given up before its turn
        if portion and (len(portion) == RECORDS_AT_ONCE or size + own.size > BYTES_AT_ONCE):
            yield portion
            portion, size = [], 0
        portion.append(own)
        size += own.size
    if portion:
        yield portion


def _could_be(ref: str) -> bool:
    """Whether it may be (part of) an id or a hash; Postgres refuses some texts that are none."""
    return ref.isascii() and "\0" not in ref


def _utc(moment: datetime) -> datetime:
    """The moment, or the first or last one that can be written if it is beyond that.

    One without a time zone is refused, where the driver would take it for local.
    """
    return from_micros(min(max(to_micros(moment), _FIRST_MICROS), _LAST_MICROS))
