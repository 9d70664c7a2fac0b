"""Rows of one series for the points of a frame, as files that are read in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from headwater.backends.duckdb.frame_plan import FrameSource, from_source
from headwater.backends.duckdb.segments import HISTORY, open_rows
from headwater.core.duckdb_session import Session, parquet, scalar, session
from headwater.core.interruptible import in_thread
from headwater.core.sql_literals import text
from headwater.errors import HeadwaterError
from headwater.ports import SeriesFile, SeriesQuery, series_ranges
from headwater.ports.history import SERIES_FILE, SERIES_NEEDS, VALUE_AS_JSON

# The moments of all entities are for the statistics of files.
_ROWS = f"""
SELECT entity_id, epoch_us({{visible}}) AS visible_from, epoch_us(as_of) AS as_of,
       epoch_us(written_at) AS written_at, seq, {VALUE_AS_JSON} AS value
FROM headwater.history JOIN needs USING (entity_id)
WHERE feature = {{series}} AND bucket BETWEEN {{first}} AND {{last}}
  AND as_of >= make_timestamptz({{since}}) AND {{visible}} <= make_timestamptz({{upto}})
  AND epoch_us(as_of) >= since AND epoch_us({{visible}}) <= upto
"""


async def write_series(
    query: SeriesQuery,
    folder: Path,
    source: Callable[[Path], FrameSource],
    scratch: Path,
    lost: Callable[[Sequence[str]], HeadwaterError],
) -> list[SeriesFile]:
    """Write the rows that points need from a source."""

    async def read(rows: FrameSource, temporary: Path) -> list[SeriesFile]:
        return await in_thread(_write, query, folder, rows, temporary)

    return await from_source(source, scratch, lost, read)


def _write(
    query: SeriesQuery, folder: Path, source: FrameSource, temporary: Path
) -> list[SeriesFile]:
    with session(temporary) as duck:
        if source.storage is not None:
            source.storage.open(duck)
        open_rows(duck, HISTORY, source.files(), source.tail, longest=source.longest)
        points = parquet([query.points])
        duck.run(f"CREATE TABLE needs AS {SERIES_NEEDS.format(points=points, reach=query.reach)}")
        count = scalar(duck.run(f"SELECT count(*) FROM ({points})"))
        rows = partial(_rows, duck, query)
        ((first, last),) = series_ranges(query, 0, 0)
        found = scalar(duck.run(f"SELECT count(*) FROM ({rows(first, last)})"))
        ranges = series_ranges(query, count, found)
        files = []
        for buckets in ranges:
            files.append(SeriesFile(query.file(folder, buckets), buckets))
            duck.write(SERIES_FILE.format(rows=rows(*buckets)), files[-1].rows)
        return files


def _rows(duck: Session, query: SeriesQuery, first: int, last: int) -> str:
    since, upto = duck.run("SELECT min(since), max(upto) FROM needs").fetchall()[0]
    return _ROWS.format(
        visible="written_at" if query.known else "as_of",
        series=text(query.series),
        first=first,
        last=last,
        since="NULL" if since is None else since,
        upto="NULL" if upto is None else upto,
    )
