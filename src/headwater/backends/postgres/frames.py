"""Point-in-time reads of many rows, with one LATERAL join for each column.

The points are sorted like the index, so that each search starts near the end of the previous one,
and given to the server in portions, which keeps every statement far below its timeout. The answers
are copied out and collected by DuckDB, which moves them to disk if they do not fit in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.copying import (
    TO_CSV,
    Collector,
    CsvFile,
    DuckThread,
    GivenRows,
    copy_in,
    duckdb_thread,
)
from headwater.backends.postgres.history_sql import LOCK_PARTITIONS, last_value
from headwater.backends.postgres.pool import Postgres
from headwater.backends.postgres.replicas import ReplicaReads
from headwater.core.codec import Kind
from headwater.core.duckdb_session import Session, column_types, parquet, scalar
from headwater.core.sql_literals import text
from headwater.ports import FrameColumn, FrameQuery, misfit_error

IDS_AT_ONCE = 50_000
VALUES_AT_ONCE = 50_000
# No value is older, so a longer time to live makes no difference; Postgres has a limit.
_LONGEST_TTL = timedelta(days=10_000 * 366)
# In the order of the columns. Finding another order for many of them takes longer than the query.
_KEEP_ORDER = "SET LOCAL join_collapse_limit = 1"
_IDS = GivenRows({"n": "bigint", "entity_id": "text"})
_HASHES = f"SELECT n, hashtextextended(entity_id, 0) FROM {_IDS.sql}"
_HASH_COLUMNS = column_types("n BIGINT, hash BIGINT")
_POINTS = GivenRows({"row": "bigint", "entity_id": "text", "micros": "bigint"})
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
_LAST = f"""
SELECT {{values}}
FROM (
    SELECT "row", entity_id, hashtextextended(entity_id, 0) AS hash, _moment(micros) AS moment
    FROM {_POINTS.sql}
) AS requested
{{joins}}
"""
# A text in Postgres cannot contain U+0000; in history, U+FFFD is in its place.
ENTITY_ID = "replace(entity_id, chr(0), '\ufffd') AS entity_id"
# Values are of the years 1 to 9999, so an earlier or later moment makes no difference.
MICROS = "greatest(-62135596800000000, least(253402300799999999, {micros}))"
COLUMNS_AT_ONCE = 32
_MISFITS = """
SELECT misfit.place, count(*) OVER (PARTITION BY misfit.place), misfit.value, entity_id
FROM ({rows}) JOIN ({points}) USING ("row")
ORDER BY misfit.place, misfit.value LIMIT 1
"""
_HAS_ZONE = r"'^\d{{4}}-\d\d-\d\d[T ].*(Z|[+-]\d\d(:?\d\d)?)$'"


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
        points = f"SELECT count(*) FROM ({parquet([self._query.points])})"
        rows: int = await self._thread.run(lambda: scalar(self._duck.run(points)))
        collectors = [
            Collector(self._thread, partial(self._answers.add, group))
            for group in self._answers.groups
        ]
        async with connection.transaction(isolation="repeatable_read"):
            await connection.execute(LOCK_PARTITIONS)
            await connection.execute(_KEEP_ORDER)
            for series, table in self._extra.items():
                await self._load_extra(connection, self._query.extra[series], table)
            statements = await self._statements(connection)
            await self._sort_points(connection)
            size = VALUES_AT_ONCE // max(1, len(self._answers.groups[0].columns))
            for start in range(0, rows, size):
                portion = f"FROM points WHERE n BETWEEN {start + 1} AND {start + size}"
                await _POINTS.set(connection, self._thread, portion)
                for collector, statement in zip(collectors, statements, strict=True):
                    await collector.add(connection, statement)
                if self._progress is not None:
                    self._progress(min(start + size, rows))
        for collector in collectors:
            await collector.finish()

    async def _sort_points(self, connection: Connection) -> None:
        """Create a table of the points in the order of the index, which has hashes of ids."""
        ids = await self._thread.run(self._number_ids)
        hashes = Collector(self._thread, self._add_hashes)
        for first in range(0, ids, IDS_AT_ONCE):
            portion = f"FROM ids WHERE n BETWEEN {first + 1} AND {first + IDS_AT_ONCE}"
            await _IDS.set(connection, self._thread, portion)
            await hashes.add(connection, _HASHES)
        await hashes.finish()
        await self._thread.run(self._number_points)

    def _number_ids(self) -> int:
        micros, points = MICROS.format(micros='"at"'), parquet([self._query.points])
        self._duck.run(
            f"""
            CREATE OR REPLACE TABLE given AS
            SELECT "row", {ENTITY_ID}, {micros} AS micros FROM ({points});
            CREATE OR REPLACE TABLE ids AS
            SELECT row_number() OVER () AS n, entity_id
            FROM (SELECT DISTINCT entity_id FROM given);
            CREATE OR REPLACE TABLE hashes (n BIGINT, hash BIGINT)
            """
        )
        return int(scalar(self._duck.run("SELECT count(*) FROM ids")))

    def _add_hashes(self, file: CsvFile) -> None:
        self._duck.run(f"INSERT INTO hashes FROM {file.rows(_HASH_COLUMNS)}")

    def _number_points(self) -> None:
        self._duck.run(
            "CREATE OR REPLACE TABLE points AS"
            " SELECT row_number() OVER (ORDER BY hash, entity_id, micros) AS n, given.*"
            " FROM given JOIN ids USING (entity_id) JOIN hashes USING (n)"
        )

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

    async def _load_extra(self, connection: Connection, source: Path, table: str) -> None:
        file = self._duck.folder / f"{table}.csv"
        rows = f"""
            SELECT row_number() OVER (), {ENTITY_ID}, value,
                   make_timestamptz({MICROS.format(micros="as_of")})
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
    postgres: Postgres | ReplicaReads,
    query: FrameQuery,
    answer: Path,
    progress: Callable[[int], None] | None,
) -> None:
    """Answer a frame from one snapshot of history."""
    async with duckdb_thread(answer.parent) as thread:
        answers = FrameAnswers(query, thread.duck)
        await postgres.run(FrameTransaction(query, answers, thread, progress).run)
        await thread.run(partial(answers.write, answer))


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


class ColumnGroup(NamedTuple):
    """Some columns of a frame, which one statement answers; more take long to plan."""

    first: int
    columns: Sequence[FrameColumn]

    @property
    def numbered(self) -> list[tuple[int, FrameColumn]]:
        return [*enumerate(self.columns, self.first)]

    @property
    def table(self) -> str:
        return f"answers_{self.first}"


def groups_of(columns: Sequence[FrameColumn]) -> list[ColumnGroup]:
    """Divide the columns; there is at least one group."""
    starts = range(0, max(1, len(columns)), COLUMNS_AT_ONCE)
    return [ColumnGroup(first, columns[first : first + COLUMNS_AT_ONCE]) for first in starts]


class FrameAnswers:
    """Tables of answers, one for each group of columns; its methods block."""

    def __init__(self, query: FrameQuery, duck: Session) -> None:
        self.groups = groups_of(query.columns)
        self._query = query
        self._duck = duck

    def clear(self) -> None:
        for group in self.groups:
            columns = ['"row" BIGINT']
            for n, column in group.numbered:
                columns += [f"v{n} {_FORMS[column.kind].type}", f"a{n} BIGINT"]
            columns += ["misfit STRUCT(place BIGINT, value VARCHAR)"]
            self._duck.run(f"CREATE OR REPLACE TABLE {group.table} ({', '.join(columns)})")

    def add(self, group: ColumnGroup, file: CsvFile) -> None:
        """Add rows with the JSON text and the ``as_of`` of each column."""
        types, values, misfits = {"row": "BIGINT"}, ['"row"'], list[str]()
        for n, column in group.numbered:
            types |= {f"t{n}": "VARCHAR", f"a{n}": "TIMESTAMPTZ"}
            given = f"nullif(t{n}, 'null')"
            form = _FORMS[column.kind].value.format(given)
            values += [f"{form} AS v{n}", f"epoch_us(a{n})"]
            misfits += [f"WHEN v{n} IS NULL AND {given} IS NOT NULL THEN row({n}, {given})"]
        # The first one of a row is enough: the error is about the first column that has any.
        values += [f"CASE {' '.join(misfits)} END" if misfits else "NULL"]
        self._duck.run(
            f"INSERT INTO {group.table} SELECT {', '.join(values)} FROM {file.rows(types)}"
        )

    def write(self, answer: Path) -> None:
        """Write the answer in the order of the rows, or raise FeatureValueError."""
        self._check_misfits()
        tables = self.groups[0].table + "".join(
            f' JOIN {group.table} USING ("row")' for group in self.groups[1:]
        )
        self._duck.write(f'SELECT * EXCLUDE (misfit) FROM {tables} ORDER BY "row"', answer)

    def _check_misfits(self) -> None:
        rows = " UNION ALL ".join(
            f'SELECT "row", misfit FROM {group.table} WHERE misfit IS NOT NULL'
            for group in self.groups
        )
        points = parquet([self._query.points])
        first = self._duck.run(_MISFITS.format(rows=rows, points=points)).fetchone()
        if first is not None:
            place, count, example, entity_id = first
            column = self._query.columns[place]
            raise misfit_error(column, count=count, example=example, entity_id=entity_id)
