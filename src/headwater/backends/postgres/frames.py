"""Point-in-time reads of many rows, with one LATERAL join for each column.

The points are copied into a temporary table in blocks, and sorted like the index, so that each
search starts near the end of the previous one. The answers are copied out in portions, which keeps
every statement far below its timeout, and collected by DuckDB, which moves them to disk if they
do not fit in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

from headwater.backends.postgres.copying import (
    TO_CSV,
    Collector,
    DuckThread,
    copy_in,
    duckdb_thread,
)
from headwater.backends.postgres.frame_answers import ColumnGroup, FrameAnswers
from headwater.backends.postgres.history_sql import LOCK_PARTITIONS, last_value
from headwater.backends.postgres.pool import Connection, Postgres
from headwater.core.duckdb_session import parquet, scalar
from headwater.core.sql_literals import text
from headwater.ports import FrameColumn, FrameQuery

POINTS_AT_ONCE = 500_000
VALUES_AT_ONCE = 50_000
# No value is older, so a longer time to live makes no difference; Postgres has a limit.
_LONGEST_TTL = timedelta(days=10_000 * 366)

_STAGE = """
CREATE TEMPORARY TABLE _given ("row" bigint, entity_id text COLLATE "C", moment timestamptz)
ON COMMIT DROP;
CREATE TEMPORARY TABLE _points (
    n integer PRIMARY KEY, "row" bigint, entity_id text COLLATE "C", hash bigint, moment timestamptz
) ON COMMIT DROP;
-- In the order of the columns. Finding another order for many of them takes longer than the query.
SET LOCAL join_collapse_limit = 1
"""
_SORT = """
TRUNCATE _points;
INSERT INTO _points
SELECT row_number() OVER (ORDER BY hashtextextended(entity_id, 0), moment),
       "row", entity_id, hashtextextended(entity_id, 0), moment
FROM _given;
TRUNCATE _given;
ANALYZE _points
"""
_STAGE_EXTRA = """
CREATE TEMPORARY TABLE {table} (n bigint, entity_id text COLLATE "C", value json, as_of timestamptz)
ON COMMIT DROP
"""
_INDEX_EXTRA = """
ALTER TABLE {table} ADD hash bigint GENERATED ALWAYS AS (hashtextextended(entity_id, 0)) STORED;
CREATE INDEX ON {table} (hash, as_of DESC, n DESC);
ANALYZE {table}
"""
_WITH_VALUES_AHEAD = """
SELECT wanted.feature FROM unnest($1::text[]) AS wanted (feature)
WHERE EXISTS (SELECT FROM _history AS h WHERE h.feature = wanted.feature AND as_of > written_at)
"""
_LAST = """
SELECT {values}
FROM (SELECT * FROM _points WHERE n > {{first}} AND n <= {{last}} ORDER BY n) AS requested
{joins}
"""

# A text in Postgres cannot contain U+0000; in history, U+FFFD is in its place.
_ENTITY_ID = "replace(entity_id, chr(0), '\ufffd') AS entity_id"
# Values are of the years 1 to 9999, so an earlier or later moment makes no difference.
_MOMENT = "make_timestamptz(greatest(-62135596800000000, least(253402300799999999, {micros})))"


class FrameTransaction:
    """A read of a frame: statements in one transaction."""

    def __init__(
        self,
        query: FrameQuery,
        answers: FrameAnswers,
        thread: DuckThread,
        progress: Callable[[int], None] | None,
    ) -> None:
        self._query = query
        self._answers = answers
        self._thread = thread
        self._duck = thread.duck
        self._progress = progress
        series_read = {} if query.known else query.extra
        self._extra = {series: f"_extra_{n}" for n, series in enumerate(series_read)}

    async def run(self, connection: Connection) -> None:
        """Collect the answers; running it again begins from the start."""
        await self._thread.run(self._answers.clear)
        rows = await self._thread.run(self._count_points)
        collectors = [
            Collector(self._thread, partial(self._answers.add, group))
            for group in self._answers.groups
        ]
        async with connection.transaction(isolation="repeatable_read"):
            await connection.execute(LOCK_PARTITIONS)
            await connection.execute(_STAGE)
            for series, table in self._extra.items():
                await self._load_extra(connection, self._query.extra[series], table)
            statements = await self._statements(connection)
            for first in range(0, rows, POINTS_AT_ONCE):
                await self._load_points(connection, first)
                end = min(rows, first + POINTS_AT_ONCE)
                for start, upto in self._portions(end - first):
                    for collector, statement in zip(collectors, statements, strict=True):
                        await collector.add(connection, statement.format(first=start, last=upto))
                    if self._progress is not None:
                        self._progress(first + upto)
        for collector in collectors:
            await collector.finish()

    def _portions(self, points: int) -> Iterator[tuple[int, int]]:
        size = VALUES_AT_ONCE // max(1, len(self._answers.groups[0].columns))
        for start in range(0, points, size):
            yield start, min(start + size, points)

    def _count_points(self) -> int:
        source = parquet([self._query.points])
        rows: int = scalar(self._duck.run(f"SELECT count(*) FROM ({source})"))
        return rows

    async def _load_points(self, connection: Connection, first: int) -> None:
        await copy_in(
            connection, "_given", await self._thread.run(lambda: self._export_points(first))
        )
        await connection.execute(_SORT)

    async def _statements(self, connection: Connection) -> list[str]:
        """Return a statement for each group of columns."""
        # Most features have no values ahead of the clock, which would be a second search.
        series = [column.series for column in self._query.columns] if self._query.known else []
        ahead = {feature for (feature,) in await connection.fetch(_WITH_VALUES_AHEAD, series)}
        return [self._statement(group, ahead) for group in self._answers.groups]

    def _statement(self, group: ColumnGroup, ahead: Collection[str]) -> str:
        values = ['requested."row"', *(f"_{n}.value, _{n}.as_of" for n, _ in group.numbered)]
        joins = [self._join(n, column, ahead) for n, column in group.numbered]
        return _LAST.format(values=", ".join(values), joins="\n".join(joins))

    def _join(self, number: int, column: FrameColumn, ahead: Collection[str]) -> str:
        known = self._query.known
        last = last_value(
            text(column.series),
            known=known,
            has_ahead=column.series in ahead,
            extra=self._extra.get(column.series),
        )
        begin = f"_{number}.written_at" if known else f"_{number}.as_of"
        counts = _lasts(begin, column.ttl)
        for until, ttl in reversed(column.earlier_ttls):
            lasts = _lasts(begin, ttl)
            counts = f"CASE WHEN {begin} < _moment({until}) THEN {lasts} ELSE {counts} END"
        return f"LEFT JOIN LATERAL ({last}) AS _{number} ON {counts}"

    def _export_points(self, first: int) -> Path:
        file = self._duck.folder / "points.csv"
        rows = f"""
            SELECT "row", {_ENTITY_ID}, {_MOMENT.format(micros='"at"')} AS moment
            FROM ({parquet([self._query.points])})
            WHERE "row" BETWEEN {first} AND {first + POINTS_AT_ONCE - 1}
        """
        self._duck.run(f"COPY ({rows}) TO {text(file)} {TO_CSV}")
        return file

    async def _load_extra(self, connection: Connection, source: Path, table: str) -> None:
        file = self._duck.folder / f"{table}.csv"
        rows = f"""
            SELECT row_number() OVER (), {_ENTITY_ID}, value, {_MOMENT.format(micros="as_of")}
            FROM ({parquet([source])})
        """
        await self._thread.run(lambda: self._duck.run(f"COPY ({rows}) TO {text(file)} {TO_CSV}"))
        await connection.execute(_STAGE_EXTRA.format(table=table))
        await copy_in(connection, table, file)
        await connection.execute(_INDEX_EXTRA.format(table=table))


def _lasts(begin: str, ttl: timedelta | None) -> str:
    """Return the condition under which a value counts at a point."""
    if ttl is None:
        return "true"
    micros = min(ttl, _LONGEST_TTL) // timedelta(microseconds=1)
    return f"{begin} + interval '{micros} microseconds' > requested.moment"


async def read_frame(
    postgres: Postgres,
    query: FrameQuery,
    answer: Path,
    progress: Callable[[int], None] | None,
) -> None:
    """Answer a frame from one snapshot of history."""
    async with duckdb_thread(answer.parent) as thread:
        answers = FrameAnswers(query, thread.duck)
        await postgres.run(FrameTransaction(query, answers, thread, progress).run)
        await thread.run(partial(answers.write, answer))
