"""Point-in-time reads of many rows, with one LATERAL join for each column.

The points are copied into a temporary table in blocks, and sorted like the index, so that each
search starts near the end of the previous one. The answers are copied out in portions, which keeps
every statement far below its timeout, and collected by DuckDB, which moves them to disk if they
do not fit in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from headwater.backends.postgres.copying import (
    TO_CSV,
    Collector,
    CsvFile,
    DuckThread,
    copy_in,
    duckdb_thread,
)
from headwater.backends.postgres.history_sql import LOCK_PARTITIONS, last_value
from headwater.backends.postgres.pool import Connection, Postgres
from headwater.core.codec import Kind
from headwater.core.duckdb_session import parquet, scalar, text
from headwater.ports import FrameColumn, FrameQuery, misfit_error

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

_CREATE_MISFITS = """
CREATE OR REPLACE TABLE misfits ("row" BIGINT, place BIGINT, value VARCHAR)
"""
_MISFITS = """
SELECT place, count(*) OVER (PARTITION BY place), value, entity_id
FROM misfits JOIN ({points}) USING ("row")
ORDER BY place, value LIMIT 1
"""

# A text in Postgres cannot contain U+0000; in history, U+FFFD is in its place.
_ENTITY_ID = "replace(entity_id, chr(0), '\ufffd') AS entity_id"
# Values are of the years 1 to 9999, so an earlier or later moment makes no difference.
_MOMENT = "make_timestamptz(greatest(-62135596800000000, least(253402300799999999, {micros})))"

_HAS_ZONE = r"'^\d{{4}}-\d\d-\d\d[T ].*(Z|[+-]\d\d(:?\d\d)?)$'"


class _Form(NamedTuple):
    """The type of a kind's column in an answer, and a JSON text in it (NULL if misfit)."""

    type: str
    value: str


_FORMS: Mapping[Kind, _Form] = {
    "int": _Form(
        "BIGINT",
        "CASE WHEN regexp_full_match({0}, '-?[0-9]+') THEN TRY_CAST({0} AS BIGINT) END",
    ),
    "float": _Form("DOUBLE", "TRY_CAST({0} AS DOUBLE)"),
    "bool": _Form("BOOLEAN", "CASE {0} WHEN 'true' THEN true WHEN 'false' THEN false END"),
    "text": _Form("VARCHAR", "CASE WHEN {0}[1] = '\"' THEN {0} ->> '$' END"),
    "time": _Form(
        "TIMESTAMPTZ",
        "CASE WHEN {0}[1] = '\"' AND regexp_matches({0} ->> '$', " + _HAS_ZONE + ")"
        " THEN TRY_CAST({0} ->> '$' AS TIMESTAMPTZ) END",
    ),
    "json": _Form("VARCHAR", "{0}"),
    "none": _Form("VARCHAR", "{0}"),
}


class FrameRead:
    """A read of a frame: statements in one transaction, their answers in DuckDB."""

    def __init__(
        self, query: FrameQuery, thread: DuckThread, progress: Callable[[int], None] | None
    ) -> None:
        self._query = query
        self._thread = thread
        self._duck = thread.duck
        self._progress = progress
        wanted = {} if query.known else query.extra
        self._extra = {series: f"_extra_{n}" for n, series in enumerate(wanted)}

    async def run(self, connection: Connection) -> None:
        """Collect the answers; running it again begins from the start."""
        rows = await self._thread.run(self._prepare)
        collector = Collector(self._thread, self._collect)
        async with connection.transaction(isolation="repeatable_read"):
            await connection.execute(LOCK_PARTITIONS)
            await connection.execute(_STAGE)
            for series, table in self._extra.items():
                await self._load_extra(connection, self._query.extra[series], table)
            statement = await self._statement(connection)
            for first in range(0, rows, POINTS_AT_ONCE):
                await self._load_points(connection, first)
                end = min(rows, first + POINTS_AT_ONCE)
                for start, upto in self._portions(end - first):
                    await collector.add(connection, statement.format(first=start, last=upto))
                    if self._progress is not None:
                        self._progress(first + upto)
        await collector.finish()

    def _portions(self, points: int) -> Iterator[tuple[int, int]]:
        size = max(1, VALUES_AT_ONCE // max(1, len(self._query.columns)))
        for start in range(0, points, size):
            yield start, min(start + size, points)

    async def _load_points(self, connection: Connection, first: int) -> None:
        await copy_in(
            connection, "_given", await self._thread.run(lambda: self._export_points(first))
        )
        await connection.execute(_SORT)

    async def _statement(self, connection: Connection) -> str:
        columns = self._query.columns
        # Most features have no values ahead of the clock, which would be a second search.
        series = [column.series for column in columns] if self._query.known else []
        ahead = {feature for (feature,) in await connection.fetch(_WITH_VALUES_AHEAD, series)}
        joins = [self._join(n, column, ahead) for n, column in enumerate(columns)]
        values = ['requested."row"', *(f"_{n}.value, _{n}.as_of" for n in range(len(columns)))]
        return _LAST.format(values=", ".join(values), joins="\n".join(joins))

    def _join(self, number: int, column: FrameColumn, ahead: Collection[str]) -> str:
        known = self._query.known
        last = last_value(
            text(column.series),
            known=known,
            has_ahead=column.series in ahead,
            extra=self._extra.get(column.series),
        )
        counts = "true"
        if column.ttl is not None:
            begin = f"_{number}.written_at" if known else f"_{number}.as_of"
            micros = min(column.ttl, _LONGEST_TTL) // timedelta(microseconds=1)
            counts = f"{begin} + interval '{micros} microseconds' > requested.moment"
        return f"LEFT JOIN LATERAL ({last}) AS _{number} ON {counts}"

    def _prepare(self) -> int:
        """Create the tables of the answers; return the number of points."""
        columns = ['"row" BIGINT']
        for n, column in enumerate(self._query.columns):
            columns += [f"v{n} {_FORMS[column.kind].type}", f"a{n} BIGINT"]
        self._duck.run(f"CREATE OR REPLACE TABLE answers ({', '.join(columns)})")
        self._duck.run(_CREATE_MISFITS)
        source = parquet([self._query.points])
        rows: int = scalar(self._duck.run(f"SELECT count(*) FROM ({source})"))
        return rows

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

    def _collect(self, file: CsvFile) -> None:
        """Add a portion of the answers, with the values in the types of their kinds."""
        types, values = {"row": "BIGINT"}, ['"row"']
        for n, column in enumerate(self._query.columns):
            types |= {f"t{n}": "VARCHAR", f"a{n}": "TIMESTAMPTZ"}
            given = f"nullif(t{n}, 'null')"
            form = _FORMS[column.kind].value.format(given)
            values += [f"{form} AS v{n}", f"epoch_us(a{n}) AS a{n}"]
            values += [f"CASE WHEN v{n} IS NULL THEN {given} END AS misfit{n}"]
        rows = file.rows(types)
        self._duck.run(f"CREATE OR REPLACE TABLE portion AS SELECT {', '.join(values)} FROM {rows}")
        self._duck.run("INSERT INTO answers SELECT COLUMNS('^([va]\\d+|row)$') FROM portion")
        for n in range(len(self._query.columns)):
            self._duck.run(
                f'INSERT INTO misfits SELECT "row", {n}, misfit{n} FROM portion'
                f" WHERE misfit{n} IS NOT NULL"
            )

    def finish(self, answer: Path) -> None:
        """Write the answer in the order of the rows, or raise FeatureValueError."""
        first = self._duck.run(_MISFITS.format(points=parquet([self._query.points]))).fetchone()
        if first is not None:
            place, count, example, entity_id = first
            column = self._query.columns[place]
            raise misfit_error(column, count=count, example=example, entity_id=entity_id)
        self._duck.run(f'COPY (FROM answers ORDER BY "row") TO {text(answer)} (FORMAT parquet)')


async def read_frame(
    postgres: Postgres,
    query: FrameQuery,
    answer: Path,
    progress: Callable[[int], None] | None,
) -> None:
    """Answer a frame from one snapshot of history."""
    async with duckdb_thread(answer.parent) as thread:
        frame = FrameRead(query, thread, progress)
        await postgres.run(frame.run)
        await thread.run(lambda: frame.finish(answer))
