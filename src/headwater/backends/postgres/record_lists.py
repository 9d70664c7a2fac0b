"""Lists and counts of the records in Postgres."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from headwater.backends.postgres.pool import Postgres
from headwater.backends.postgres.store_identity import StoreCheck
from headwater.core.clock import in_range
from headwater.errors import InvalidInputError
from headwater.errors.hints import quoted
from headwater.model.contexts import RecordSummary
from headwater.ports import HASH_PREFIX, RecordQuery

_SUMMARY = ", ".join(RecordSummary.__struct_fields__)
_BEGINNING = f"""
SELECT {_SUMMARY} FROM _records WHERE context_id >= $1 AND context_id < $2
ORDER BY context_id DESC LIMIT $3
"""
# Only some, so that a short prefix does not collect all records.
_WITH_HASH = f"""
SELECT {_SUMMARY} FROM _records WHERE context_id = ANY (ARRAY (
    SELECT context_id FROM _records WHERE record_hash >= $1 AND record_hash < $2 LIMIT 10000
)) AND context_id < $4 ORDER BY context_id DESC LIMIT $3
"""
_LIST = """
SELECT {columns} FROM {table}
WHERE (created_at, context_id) {after} ($1, $2) AND created_at {until} $3 AND {wanted}
ORDER BY created_at {order}, context_id {order} LIMIT $4
"""
# One range of an index for each interval; a single scan for all would have to sort.
_COUNT = """
SELECT (
    SELECT count(*) FROM (
        SELECT FROM {table} WHERE created_at >= first AND created_at < last AND {wanted} LIMIT $3
    ) AS counted
)
FROM unnest($1::timestamptz[], $2::timestamptz[]) WITH ORDINALITY AS intervals (first, last, number)
ORDER BY number
"""
_CREATED_AT = "SELECT created_at FROM _records WHERE context_id = $1"
_LAST_CHARACTER = "\U0010ffff"
_FIRST = datetime.min.replace(tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)


class ListOrder(NamedTuple):
    """The order of a list: how its page starts after a position, and where it ends."""

    after: str
    until: str
    order: str


NEWEST_FIRST = ListOrder("<", ">=", "DESC")
OLDEST_FIRST = ListOrder(">", "<", "ASC")


class RecordLists:
    """Reads pages of records by a range of an index."""

    def __init__(self, postgres: Postgres, store: StoreCheck) -> None:
        self._postgres = postgres
        self._check_same_store = store.raise_known_mismatch

    async def beginning(
        self, prefix: str, *, before: str | None = None, limit: int = 100
    ) -> list[RecordSummary]:
        last = _LAST_CHARACTER if before is None else (await self._position(before))[1]
        if not is_possible_ref(prefix):
            return []
        end = prefix + _LAST_CHARACTER
        if prefix.startswith(HASH_PREFIX):
            return await self._list(_WITH_HASH, prefix, end, limit, last)
        return await self._list(_BEGINNING, prefix, min(end, last), limit)

    async def records(self, query: RecordQuery) -> list[RecordSummary]:
        order, bounds = await self._bounds(
            query.start, query.end, query.before, is_reversed=query.oldest_first
        )
        texts = query.texts()
        if texts is None:
            return []
        return await self._list(records_where(texts, order), *bounds, query.limit, *texts.values())

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
        order, bounds = await self._bounds(start, end, before, is_reversed=oldest_first)
        return await self._list(records_found(order), *bounds, limit, key)

    async def count(self, query: RecordQuery, edges: Sequence[datetime], most: int) -> list[int]:
        texts = query.texts()
        if texts is None:
            return [0] * (len(edges) - 1)
        sql = count_where("_records", texts)
        return await self._counts(sql, edges, most, *texts.values())

    async def count_found(self, key: bytes, edges: Sequence[datetime], most: int) -> list[int]:
        return await self._counts(count_where("_record_keys", ["key"]), edges, most, key)

    async def _counts(self, sql: str, edges: Sequence[datetime], *arguments: object) -> list[int]:
        self._check_same_store()
        moments = [in_range(edge) for edge in edges]
        most, *texts = arguments
        rows = await self._postgres.run(
            lambda connection: connection.fetch(sql, moments[:-1], moments[1:], most, *texts)
        )
        return [count for (count,) in rows]

    async def _list(self, sql: str, *arguments: object) -> list[RecordSummary]:
        self._check_same_store()
        rows = await self._postgres.run(lambda connection: connection.fetch(sql, *arguments))
        return [RecordSummary(**dict(row)) for row in rows]

    async def _bounds(
        self,
        start: datetime | None,
        end: datetime | None,
        before: str | None,
        *,
        is_reversed: bool,
    ) -> tuple[ListOrder, tuple[datetime, str, datetime]]:
        """Return the order of a list, where its page starts, and where the list ends.

        The start of the page is one bound: with two, Postgres may scan from the wrong one.
        """
        first = (_FIRST if start is None else in_range(start), "")
        last = (_LAST, _LAST_CHARACTER) if end is None else (in_range(end), "")
        if is_reversed:
            page = first if before is None else max(first, await self._position(before))
            return OLDEST_FIRST, (*page, last[0])
        page = last if before is None else min(last, await self._position(before))
        return NEWEST_FIRST, (*page, first[0])

    async def _position(self, before: str) -> tuple[datetime, str]:
        """Return the position of a record in lists."""
        created_at = None
        if is_possible_ref(before):
            created_at = await self._postgres.run(
                lambda connection: connection.fetchval(_CREATED_AT, before)
            )
        if created_at is None:
            raise InvalidInputError(
                f"no record has the id {quoted(before)}, so a list cannot continue after it; pass "
                "the id of the last record of the previous list"
            )
        return created_at, before


def records_where(columns: Iterable[str], order: ListOrder = NEWEST_FIRST) -> str:
    """Return the query for a list of records with given texts in columns."""
    return _LIST.format(
        columns=_SUMMARY, table="_records", wanted=_tests(columns, 5), **order._asdict()
    )


def records_found(order: ListOrder = NEWEST_FIRST) -> str:
    """Return the query for a list of records with a key.

    The page is chosen by the keys alone, so that only the listed records are looked up.
    """
    page = _LIST.format(
        columns="context_id", table="_record_keys", wanted=_tests(["key"], 5), **order._asdict()
    )
    return f"""
        SELECT {_SUMMARY} FROM ({page}) AS page JOIN _records USING (context_id)
        ORDER BY created_at {order.order}, context_id {order.order}
    """


def count_where(table: str, columns: Iterable[str]) -> str:
    """Return the query that counts rows with given values in columns, between edges."""
    return _COUNT.format(table=table, wanted=_tests(columns, 4))


def is_possible_ref(ref: str) -> bool:
    """Return whether a text may be (part of) an id or hash; Postgres refuses some other texts."""
    return ref.isascii() and "\0" not in ref


def _tests(columns: Iterable[str], first: int) -> str:
    """Return tests of columns; the values are parameters from a number on."""
    tests = [f"{column} = ${number}" for number, column in enumerate(columns, first)]
    return " AND ".join(tests) or "true"
