"""Rows of one series for the points of a frame, as files that are read in order."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.copying import (
    Collector,
    CsvFile,
    DuckThread,
    GivenRows,
    duckdb_thread,
)
from headwater.backends.postgres.exports import add_buckets
from headwater.backends.postgres.frames import ENTITY_ID, MICROS
from headwater.backends.postgres.history_sql import LOCK_PARTITIONS
from headwater.backends.postgres.replicas import ReplicaReads
from headwater.core.duckdb_session import Session, column_types, parquet, scalar
from headwater.core.sql_literals import text
from headwater.ports import SeriesFile, SeriesQuery, series_ranges
from headwater.ports.history import SERIES_FILE, SERIES_NEEDS

IDS_AT_ONCE = 10_000
_NEEDS = GivenRows({"entity_id": "text", "since": "bigint", "upto": "bigint"})
_ROWS = f"""
SELECT h.entity_id, h.value, h.as_of, h.written_at, h.seq
FROM (
    SELECT entity_id, hashtextextended(entity_id, 0) AS hash, _moment(since) AS since,
           _moment(upto) AS upto
    FROM {_NEEDS.sql}
) AS needs
CROSS JOIN LATERAL (
    SELECT * FROM _history AS h
    WHERE h.feature = {{series}} AND hashtextextended(h.entity_id, 0) = needs.hash
      AND h.entity_id = needs.entity_id AND h.as_of >= since AND h.{{visible}} <= upto
) AS h
"""
_COLUMNS = column_types(
    "entity_id VARCHAR, value VARCHAR, as_of TIMESTAMPTZ, written_at TIMESTAMPTZ, seq BIGINT"
)
_OF_BUCKETS = """
SELECT entity_id, epoch_us({visible}) AS visible_from, epoch_us(as_of) AS as_of,
       epoch_us(written_at) AS written_at, value, seq
FROM rows JOIN buckets USING (entity_id) WHERE bucket BETWEEN {first} AND {last}
"""


async def write_series(reads: ReplicaReads, query: SeriesQuery, folder: Path) -> list[SeriesFile]:
    """Write the rows that points need, from one snapshot."""

    async def copy(connection: Connection) -> None:
        await thread.run(partial(_create, thread.duck))
        ids = await thread.run(partial(_number_needs, thread.duck, query))
        collector = Collector(thread, partial(_collect, thread.duck))
        async with connection.transaction(isolation="repeatable_read"):
            await connection.execute(LOCK_PARTITIONS)
            sql = _ROWS.format(series=text(query.series), visible=_visible(query))
            for first in range(0, ids, IDS_AT_ONCE):
                portion = f"FROM needs WHERE n BETWEEN {first + 1} AND {first + IDS_AT_ONCE}"
                await _NEEDS.set(connection, thread, portion)
                await collector.add(connection, sql)
        await collector.finish()

    async with duckdb_thread(folder) as thread:
        await reads.run(copy)
        return await thread.run(partial(_write, thread, query, folder))


def _visible(query: SeriesQuery) -> str:
    return "written_at" if query.known else "as_of"


def _create(duck: Session) -> None:
    types = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())
    duck.run(f"CREATE OR REPLACE TABLE rows ({types})")


def _collect(duck: Session, file: CsvFile) -> None:
    duck.run(f"INSERT INTO rows FROM {file.rows(_COLUMNS)}")


def _number_needs(duck: Session, query: SeriesQuery) -> int:
    """Create a table of the entities of the points; return their number."""
    needs = SERIES_NEEDS.format(points=parquet([query.points]), reach=query.reach)
    duck.run(
        f"""
        CREATE OR REPLACE TABLE needs AS
        SELECT row_number() OVER () AS n, {ENTITY_ID}, {MICROS.format(micros="since")} AS since,
               {MICROS.format(micros="upto")} AS upto
        FROM ({needs})
        """
    )
    return int(scalar(duck.run("SELECT count(*) FROM needs")))


def _write(thread: DuckThread, query: SeriesQuery, folder: Path) -> list[SeriesFile]:
    duck = thread.duck
    add_buckets(thread, "rows")
    points = scalar(duck.run(f"SELECT count(*) FROM ({parquet([query.points])})"))
    found = scalar(duck.run("SELECT count(*) FROM rows"))
    files = []
    for first, last in series_ranges(query, points, found):
        files.append(SeriesFile(query.file(folder, (first, last)), (first, last)))
        rows = _OF_BUCKETS.format(visible=_visible(query), first=first, last=last)
        duck.write(SERIES_FILE.format(rows=rows), files[-1].rows)
    return files
