"""Point-in-time reads of many rows, with one LATERAL join for each column.

The points are copied into a temporary table in blocks, and sorted like the index, so that each
search starts near the end of the previous one. The answers are copied out in portions, which keeps
every statement far below its timeout, and collected by DuckDB, which moves them to disk if they
do not fit in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from headwater.backends.postgres.copying import TO_CSV, CsvFile, copy_in
from headwater.backends.postgres.history_sql import last_value
from headwater.backends.postgres.pool import Connection, Postgres
from headwater.core.codec import Kind
from headwater.core.duckdb_session import Session, parquet, scalar, session, text
from headwater.ports import FrameColumn, FrameQuery, misfit_error

POINTS_AT_ONCE = 500_000
VALUES_AT_ONCE = 50_000
BYTES_AT_ONCE = 16 << 20
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
        self, query: FrameQuery, duck: Session, progress: Callable[[int], None] | None
    ) -> None:
        self._query = query
        self._duck = duck
        self._progress = progress
        wanted = {} if query.known else query.extra
        self._extra = {series: f"_extra_{n}" for n, series in enumerate(wanted)}
        self._statement = ""
        self._rows = 0
        self._answered = 0

    async def run(self, connection: Connection) -> None:
        """Collect the answers; running it again begins from the start."""
        await asyncio.to_thread(self._prepare)
        self._answered = 0
        async with connection.transaction(isolation="repeatable_read"):
            await connection.execute(_STAGE)
            self._statement = await self._prepare_statement(connection)
            for series, table in self._extra.items():
                await self._load_extra(connection, self._query.extra[series], table)
            for first in range(0, self._rows, POINTS_AT_ONCE):
                await self._read_block(connection, first)

    async def _prepare_statement(self, connection: Connection) -> str:
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

    async def _read_block(self, connection: Connection, first: int) -> None:
        points = await asyncio.to_thread(self._export_points, first)
        await copy_in(connection, "_given", points)
        await connection.execute(_SORT)
        count = min(POINTS_AT_ONCE, self._rows - first)
        size = max(1, VALUES_AT_ONCE // max(1, len(self._query.columns)))
        collecting: asyncio.Task[None] | None = None
        answers = self._new_file(0)
        for start in range(0, count, size):
            end = min(start + size, count)
            await answers.add(connection, self._statement.format(first=start, last=end))
            if answers.size >= BYTES_AT_ONCE or end == count:
                # The server finds the next answers meanwhile.
                if collecting is not None:
                    await collecting
                collecting = asyncio.create_task(asyncio.to_thread(self._collect, answers))
                answers = self._new_file(end)
            self._report(end - start)
        if collecting is not None:
            await collecting
        await connection.execute("TRUNCATE _points")

    def _new_file(self, number: int) -> CsvFile:
        return CsvFile(self._duck.folder / f"answers-{number}.csv")

    def _report(self, rows: int) -> None:
        self._answered += rows
        if self._progress is not None:
            self._progress(self._answered)

    def _prepare(self) -> None:
        source = parquet([self._query.points])
        self._rows = scalar(self._duck.run(f"SELECT count(*) FROM ({source})"))
        columns = ['"row" BIGINT']
        for n, column in enumerate(self._query.columns):
            columns += [f"v{n} {_FORMS[column.kind].type}", f"a{n} BIGINT"]
        self._duck.run(f"CREATE OR REPLACE TABLE answers ({', '.join(columns)})")
        self._duck.run(
            'CREATE OR REPLACE TABLE misfits ("row" BIGINT, place BIGINT, value VARCHAR)'
        )

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
        await asyncio.to_thread(self._duck.run, f"COPY ({rows}) TO {text(file)} {TO_CSV}")
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
        rows = file.read(types)
        self._duck.run(f"CREATE OR REPLACE TABLE portion AS SELECT {', '.join(values)} FROM {rows}")
        self._duck.run("INSERT INTO answers SELECT COLUMNS('^([va]\\d+|row)$') FROM portion")
        for n in range(len(self._query.columns)):
            self._duck.run(
                f'INSERT INTO misfits SELECT "row", {n}, misfit{n} FROM portion'
                f" WHERE misfit{n} IS NOT NULL"
            )
        file.path.unlink()

    def finish(self, answer: Path) -> None:
        """Write the answer in the order of the rows, or raise FeatureValueError."""
        first = self._duck.run(_MISFITS.format(points=parquet([self._query.points]))).fetchone()
        if first is not None:
            place, count, example, entity_id = first
            column = self._query.columns[place]
            raise misfit_error(column, count=count, example=example, entity_id=entity_id)
        self._duck.run(
            f'COPY (FROM answers ORDER BY "row") TO {text(answer)}'
            " (FORMAT parquet, COMPRESSION zstd)"
        )


async def read_frame(
    postgres: Postgres,
    query: FrameQuery,
    answer: Path,
    progress: Callable[[int], None] | None,
) -> None:
    """Answer a frame from one snapshot of history."""
    with ExitStack() as stack:
        duck = await asyncio.to_thread(stack.enter_context, session(answer.parent))
        frame = FrameRead(query, duck, progress)
        await postgres.run(frame.run)
        await asyncio.to_thread(frame.finish, answer)
