"""Rows of one series for the points of a frame, as files that are read in order."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from headwater.backends.postgres.copying import (
    TO_CSV,
    Collector,
    CsvFile,
    DuckThread,
    copy_in,
    duckdb_thread,
)
from headwater.backends.postgres.exports import add_buckets
from headwater.backends.postgres.frames import ENTITY_ID, MOMENT
from headwater.backends.postgres.history_sql import LOCK_PARTITIONS
from headwater.backends.postgres.pool import Connection, Postgres
from headwater.core.duckdb_session import Session, column_types, parquet, scalar
from headwater.core.sql_literals import text
from headwater.ports import SeriesFile, SeriesQuery, series_ranges
from headwater.ports.history import SERIES_FILE, SERIES_NEEDS

IDS_AT_ONCE = 10_000
_STAGE = """
CREATE TEMPORARY TABLE _needs (
    n integer PRIMARY KEY, entity_id text COLLATE "C", since timestamptz, upto timestamptz
) ON COMMIT DROP
"""
_ROWS = """
SELECT h.entity_id, h.value, h.as_of, h.written_at, h.seq FROM _needs
JOIN _history AS h ON hashtextextended(h.entity_id, 0) = hashtextextended(_needs.entity_id, 0)
 AND h.entity_id = _needs.entity_id
WHERE n > {first} AND n <= {last} AND h.feature = {series}
  AND h.as_of >= since AND h.{visible} <= upto
"""
_COLUMNS = column_types(
    "entity_id VARCHAR, value VARCHAR, as_of TIMESTAMPTZ, written_at TIMESTAMPTZ, seq BIGINT"
)
_OF_BUCKETS = """
SELECT entity_id, epoch_us({visible}) AS visible_from, epoch_us(as_of) AS as_of,
       epoch_us(written_at) AS written_at, value, seq
FROM rows JOIN buckets USING (entity_id) WHERE bucket BETWEEN {first} AND {last}
"""


async def write_series(postgres: Postgres, query: SeriesQuery, folder: Path) -> list[SeriesFile]:
    """Write the rows that points need, from one snapshot."""

    async def copy(connection: Connection) -> None:
        await thread.run(partial(_create, thread.duck))
        needs, ids = await thread.run(partial(_export_needs, thread.duck, query))
        collector = Collector(thread, partial(_collect, thread.duck))
        async with connection.transaction(isolation="repeatable_read"):
            await connection.execute(LOCK_PARTITIONS)
            await connection.execute(_STAGE)
            await copy_in(connection, "_needs", needs)
            await connection.execute("ANALYZE _needs")
            for first in range(0, ids, IDS_AT_ONCE):
                sql = _ROWS.format(
                    first=first,
                    last=first + IDS_AT_ONCE,
                    series=text(query.series),
                    visible=_visible(query),
                )
                await collector.add(connection, sql)
        await collector.finish()

    async with duckdb_thread(folder) as thread:
        await postgres.run(copy)
        return await thread.run(partial(_write, thread, query, folder))


def _visible(query: SeriesQuery) -> str:
    return "written_at" if query.known else "as_of"


def _create(duck: Session) -> None:
    types = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())
    duck.run(f"CREATE OR REPLACE TABLE rows ({types})")


def _collect(duck: Session, file: CsvFile) -> None:
    duck.run(f"INSERT INTO rows FROM {file.rows(_COLUMNS)}")


def _export_needs(duck: Session, query: SeriesQuery) -> tuple[Path, int]:
    """Write the entities of the points; return the file and their number."""
    file = duck.folder / "needs.csv"
    needs = SERIES_NEEDS.format(points=parquet([query.points]), reach=query.reach)
    rows = f"""
        SELECT row_number() OVER () AS n, {ENTITY_ID}, {MOMENT.format(micros="since")},
               {MOMENT.format(micros="upto")}
        FROM ({needs})
    """
    return file, scalar(duck.run(f"COPY ({rows}) TO {text(file)} {TO_CSV}"))


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
