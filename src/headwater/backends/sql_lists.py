"""Records and audit entries in SQL: what both databases read in the same way, page by page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from headwater.errors import InvalidInputError
from headwater.errors.hints import quoted
from headwater.model.admin import AuditEntry
from headwater.model.contexts import RecordSummary
from headwater.ports import HASH_PREFIX, AuditQuery, RecordQuery, StoredRecord, is_storable

R = TypeVar("R", bound=RecordSummary)

_LIST = """
SELECT {columns} FROM {table}
WHERE ({at}, {id}) {after} ($1, $2) AND {at} {until} $3{tests}
ORDER BY {at} {order}, {id} {order} LIMIT $4
"""
SUMMARY = ", ".join(RecordSummary.__struct_fields__)
_BEGINNING = """
SELECT {columns} FROM {table} WHERE context_id >= $1 AND context_id < $2 AND context_id < $3
ORDER BY context_id DESC LIMIT $4
"""
# Only some, so that a short prefix does not collect all records.
_WITH_HASH = """
SELECT {columns} FROM {table} WHERE context_id IN (
    SELECT context_id FROM {table} WHERE record_hash >= $1 AND record_hash < $2 LIMIT 10000
) AND context_id < $3 ORDER BY context_id DESC LIMIT $4
"""
_NOUNS = {"context_id": "record", "outcome_id": "outcome", "log.id": "audit entry"}
LAST_CHARACTER = "\U0010ffff"


class SqlDatabase(Protocol):
    """A database with the parameters ``$1``, ``$2``… in its statements, and its form of times."""

    earliest: Any
    latest: Any

    def stored(self, moment: datetime) -> Any:
        """Return a time in the form of its column."""

    def time(self, stored: Any) -> datetime:
        """Return the time in a column."""

    async def rows(self, sql: str, *arguments: Any) -> Sequence[Any]: ...


class ListOrder(NamedTuple):
    """The order of a list: how its page starts after a position, and where it ends."""

    after: str
    until: str
    order: str


NEWEST_FIRST = ListOrder("<", ">=", "DESC")
OLDEST_FIRST = ListOrder(">", "<", "ASC")


class SqlList(msgspec.Struct, frozen=True):
    """Rows in the order of a time and an id, of which a page is one range of an index."""

    columns: str
    table: str
    at: str
    id: str

    def sql(
        self,
        columns: Iterable[str] = (),
        order: ListOrder = NEWEST_FIRST,
        operators: Mapping[str, str] = {},
    ) -> str:
        """Return the query for a page of the rows with given values in columns.

        Columns are compared by their operators; most have none and must be equal.
        """
        tests = [
            f" AND {column} {operators.get(column, '=')} ${number}"
            for number, column in enumerate(columns, 5)
        ]
        fields = msgspec.structs.asdict(self) | order._asdict()
        return _LIST.format(tests="".join(tests), **fields)

    async def bounds(
        self,
        database: SqlDatabase,
        start: datetime | None,
        end: datetime | None,
        before: str | None,
        *,
        oldest_first: bool = False,
    ) -> tuple[ListOrder, tuple[Any, str, Any]]:
        """Return the order of a list, where its page starts, and where the list ends.

        The start of the page is one bound: with two, a database may scan from the wrong one.
        """
        first = (database.earliest if start is None else database.stored(start), "")
        last = (database.latest, LAST_CHARACTER) if end is None else (database.stored(end), "")
        if oldest_first:
            page = first if before is None else max(first, await self.position(database, before))
            return OLDEST_FIRST, (*page, last[0])
        page = last if before is None else min(last, await self.position(database, before))
        return NEWEST_FIRST, (*page, first[0])

    async def position(self, database: SqlDatabase, row_id: str) -> tuple[Any, str]:
        """Return the position of the last row of a page; raise InvalidInputError if unknown."""
        sql = f"SELECT {self.at} FROM {self.table} WHERE {self.id} = $1"
        rows = is_storable(row_id) and await database.rows(sql, row_id)
        if not rows:
            noun = _NOUNS[self.id]
            raise InvalidInputError(
                f"no {noun} has the id {quoted(row_id)}, so the next page cannot be found; pass "
                "the next_cursor of the previous page, which is the id of its last one"
            )
        return rows[0][0], row_id


class SqlRecordReads:
    """The reads of a record log that need no search key."""

    def __init__(self, database: SqlDatabase, table: str) -> None:
        self._database = database
        self._list = SqlList(SUMMARY, table, "created_at", "context_id")

    async def get(self, ref: str) -> StoredRecord | None:
        columns = ", ".join(StoredRecord.__struct_fields__)
        sql = f"SELECT {columns} FROM {self._list.table} WHERE context_id = $1 OR record_hash = $1"
        rows = is_storable(ref) and await self._database.rows(sql, ref)
        return self._read(StoredRecord, rows[0]) if rows else None

    async def beginning(
        self, prefix: str, *, before: str | None = None, limit: int = 100
    ) -> list[RecordSummary]:
        last = LAST_CHARACTER
        if before is not None:
            _, last = await self._list.position(self._database, before)
        if not is_storable(prefix):
            return []
        sql = _WITH_HASH if prefix.startswith(HASH_PREFIX) else _BEGINNING
        sql = sql.format(columns=SUMMARY, table=self._list.table)
        return await self._summaries(sql, prefix, prefix + LAST_CHARACTER, last, limit)

    async def records(self, query: RecordQuery) -> list[RecordSummary]:
        order, bounds = await self._list.bounds(
            self._database, query.start, query.end, query.before, oldest_first=query.oldest_first
        )
        texts = query.texts()
        if texts is None:
            return []
        sql = self._list.sql(texts, order)
        return await self._summaries(sql, *bounds, query.limit, *texts.values())

    async def _summaries(self, sql: str, *arguments: Any) -> list[RecordSummary]:
        rows = await self._database.rows(sql, *arguments)
        return [self._read(RecordSummary, row) for row in rows]

    def _read(self, kind: type[R], row: Sequence[Any]) -> R:
        values = dict(zip(kind.__struct_fields__, row, strict=True))
        values["created_at"] = self._database.time(values["created_at"])
        values["is_signed"] = bool(values["is_signed"])
        values["is_redacted"] = bool(values["is_redacted"])
        return kind(**values)


def audit_list(prefix: str = "") -> SqlList:
    """Return the list of the audit log, whose tables have a prefix."""
    columns = "log.id, log.at, actor, action, target, parameters, coalesce(outcome, 'started')"
    log, outcomes = f"{prefix}audit_log AS log", f"{prefix}audit_outcomes AS outcomes"
    return SqlList(
        f"{columns}, outcomes.at, error",
        *(f"{log} LEFT JOIN {outcomes} ON outcomes.id = log.id", "log.at", "log.id"),
    )


async def audit_entries(
    database: SqlDatabase, entries: SqlList, query: AuditQuery
) -> list[AuditEntry]:
    """Return the entries of the audit log that match a query."""
    columns = {"action": query.action, "actor": query.actor}
    texts = {column: text for column, text in columns.items() if text is not None}
    if not all(map(is_storable, texts.values())):
        return []
    order, bounds = await entries.bounds(database, query.since, query.before, query.cursor)
    sql = entries.sql(texts, order)
    return [
        AuditEntry(
            id=entry_id,
            at=database.time(at),
            actor=actor,
            action=action,
            target=target,
            parameters=msgspec.json.decode(parameters),
            outcome=outcome,
            finished_at=None if finished_at is None else database.time(finished_at),
            error=error,
        )
        for entry_id, at, actor, action, target, parameters, outcome, finished_at, error in (
            await database.rows(sql, *bounds, query.limit, *texts.values())
        )
    ]
