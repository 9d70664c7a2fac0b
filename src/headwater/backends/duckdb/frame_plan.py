"""Plans of frames: the points and the rows of history that each task reads.

A frame with few points and little history is one task. A larger one is divided by buckets, so that
each task needs a bounded amount of memory; the answers are put in order afterwards.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple, TypeVar

import duckdb
import msgspec
from msgspec.structs import replace

from headwater.backends.duckdb.segments import ALL_BUCKETS, HISTORY, open_rows
from headwater.core.codec import Kind
from headwater.core.duckdb_session import (
    MAX_THREADS,
    ROW_GROUP,
    Session,
    glob_literal,
    parquet,
    private_folder,
    scalar,
    session,
)
from headwater.core.interruptible import in_thread
from headwater.core.object_storage import ObjectStorage
from headwater.core.partitioning import BUCKETS, bucket_of
from headwater.core.sql_literals import text
from headwater.errors import HeadwaterError, TaskFailedError
from headwater.ports import (
    FrameColumn,
    FrameQuery,
    Runner,
    Segment,
    bucket_ranges,
    misfit_error,
)
from headwater.ports.history import VALUE_AS_JSON, VALUE_FLOAT

T = TypeVar("T")
# A file disappears during a read only if the read takes longer than the grace period.
_ATTEMPTS = 3
MAX_POINTS = 2_000_000
MAX_ROWS = 20_000_000
"""A frame with at most so many points, and rows in history, is one task."""
_PARTS = 8
_BUCKETS = """
CREATE TABLE buckets AS
SELECT entity_id, bucket_of(entity_id) AS bucket
FROM (SELECT DISTINCT entity_id FROM read_parquet({file}, hive_partitioning = false))
"""
_SPLIT = """
SELECT points.* FROM read_parquet({file}, hive_partitioning = false) AS points
JOIN buckets USING (entity_id) WHERE bucket BETWEEN {first} AND {last}
"""
_MICROSECOND = timedelta(microseconds=1)
# After every time that history can hold.
_AFTER_ALL = 2**62
# In order, because every join sorts the points, and sorted rows take it less time.
_POINTS = """
CREATE TABLE ids AS
SELECT entity_id, CAST(row_number() OVER () AS UINTEGER) AS id
FROM (SELECT DISTINCT entity_id FROM read_parquet({file}, hive_partitioning = false));
CREATE TABLE points AS
SELECT "row", id, "at"
FROM read_parquet({file}, hive_partitioning = false) JOIN ids USING (entity_id)
ORDER BY id, "at";
CREATE TABLE numbers AS SELECT "row" FROM points ORDER BY "row"
"""
_EXTRA = f"""
UNION ALL BY NAME
{HISTORY.typed} (
    SELECT file_row_number AS seq, {{series}} AS feature, entity_id, {{kind}} AS kind, value, as_of,
           {_AFTER_ALL} AS written_at, NULL AS entity, NULL AS cause, NULL AS bucket
    FROM read_parquet({{file}}, file_row_number = true, hive_partitioning = false)
)
"""
_ROWS = """
SELECT id, seq, epoch_us(as_of) AS true_from, epoch_us(written_at) AS known_from, {value} AS value
FROM ({rows}) JOIN ids USING (entity_id)
"""
# The order in which values of one moment were written, as one number.
_WRITTEN = f"known_from::HUGEINT * {2**64} + seq"
_PAST_TRUE = f"""
SELECT id, true_from, true_from AS visible_from, arg_max_null(value, {_WRITTEN}) AS value
FROM ({{rows}})
GROUP BY id, true_from
"""
# A value that is outranked when it becomes visible never counts. The rank of the others rises with
# the time they become visible, so the last visible value is the answer.
_PAST_KNOWN = """
SELECT id, true_from, known_from AS visible_from, value
FROM (
    SELECT *, row_number() OVER (PARTITION BY id ORDER BY true_from, known_from, seq) AS rank
    FROM ({rows})
)
QUALIFY rank = max(rank) OVER (PARTITION BY id ORDER BY known_from)
"""
_JOIN = """
FROM points
ASOF LEFT JOIN ({past}) AS past ON past.id = points.id AND past.visible_from <= points."at"
"""
_COLUMN = f"""
CREATE TABLE column_{{number}} AS
SELECT CASE WHEN {{counts}} THEN value END AS value,
       CASE WHEN {{counts}} THEN true_from END AS true_from
{_JOIN} ORDER BY points."row"
"""
# Whether a value that was found is a JSON null, or does not fit the column.
_HAS_NULLS = "SELECT bool_or(value IS NULL AND true_from IS NOT NULL) FROM column_{number}"
_HAS_MISFITS = "SELECT bool_or({misfit} IS NOT NULL) FROM ({rows})"
_MISFITS = f"""
SELECT count(*), min(value), min(entity_id)
{_JOIN} JOIN ids ON ids.id = points.id
WHERE value IS NOT NULL AND {{counts}}
"""
_STRING = "CASE WHEN value_json[1] = '\"' THEN value_json ->> '$' END"
_TIME_TEXT = """strftime(CAST(value_time AS TIMESTAMP), '%Y-%m-%dT%H:%M:%S.%fZ')"""
_HAS_ZONE = r"'^\d{4}-\d\d-\d\d[T ].*(Z|[+-]\d\d(:?\d\d)?)$'"


class FrameSource(msgspec.Struct, frozen=True):
    """The rows of history at one moment: files in a folder and, if there is one, a tail."""

    folder: Path | str
    segments: Sequence[Segment]
    tail: Path | None = None
    longest: int = 0
    storage: ObjectStorage | None = None
    """Where the folder is, if it is not on this machine."""

    def files(self, buckets: tuple[int, int] = ALL_BUCKETS) -> list[str]:
        """Return the files that may have rows of a range of buckets."""
        first, last = buckets
        return [
            f"{self.folder}/{segment.name}"
            for segment in self.segments
            if segment.buckets[0] <= last and first <= segment.buckets[1]
        ]

    def gone(self, error: Exception) -> list[str]:
        """Return the files that a read failed at with an error because they were removed."""
        files = self.files()
        if self.storage is not None:
            return self.storage.gone(files, error)
        return [file for file in files if not Path(file).exists()]


class FramePlan:
    """A frame that is answered from one source, with a folder for the files in between."""

    def __init__(self, query: FrameQuery, source: FrameSource, answer: Path, folder: Path) -> None:
        self._query = query
        self._source = source
        self._answer = answer
        self._folder = folder

    async def run(self, runner: Runner, progress: Callable[[int], None] | None) -> None:
        """Answer the frame with the tasks that its size needs."""
        points = await in_thread(self._count)
        rows = sum(segment.rows for segment in self._source.segments)
        # One task takes less time than to begin with a runner.
        slots = await runner.slots() if group_count(points, rows, slots=2) > 1 else 1
        groups = group_count(points, rows, slots)
        if groups == 1:
            part = self._part(self._query.points, None, self._answer)
            # Several threads take half as much processor time again.
            is_small = max(points, rows // max(1, len(part.columns))) <= ROW_GROUP
            done = await in_thread((replace(part, threads=1) if is_small else part).run)
            if progress is not None:
                progress(done)
            return
        tasks = await in_thread(self._split, groups)
        if slots > 1:
            tasks = [replace(task, threads=1) for task in tasks]
        done = 0
        async with aclosing(runner.map(tasks)) as counts:
            async for count in counts:
                done += count
                if progress is not None:
                    progress(done)
        await in_thread(self._merge, [task.answer for task in tasks])

    def _count(self) -> int:
        with session(self._folder) as duck:
            return int(scalar(duck.run(f"SELECT count(*) FROM ({parquet([self._query.points])})")))

    def _part(self, points: Path, buckets: tuple[int, int] | None, answer: Path) -> FramePart:
        return FramePart(
            points=points,
            columns=self._query.columns,
            known=self._query.known,
            extra=self._query.extra,
            files=self._source.files(buckets or ALL_BUCKETS),
            tail=self._source.tail,
            longest=self._source.longest,
            storage=self._source.storage,
            buckets=buckets,
            answer=answer,
            scratch=self._folder,
        )

    def _split(self, groups: int) -> list[FramePart]:
        """Divide the points by bucket into files."""
        tasks = []
        with session(self._folder) as duck:
            file = glob_literal(self._query.points)
            # DuckDB has no function for it.
            duck.connection.create_function("bucket_of", bucket_of, ["VARCHAR"], "USMALLINT")
            duck.run(_BUCKETS.format(file=file))
            for first, last in bucket_ranges(groups):
                part = self._folder / f"points-{first:04}-{last:04}.parquet"
                duck.write(_SPLIT.format(file=file, first=first, last=last), part)
                answer = self._folder / f"answer-{first:04}-{last:04}.parquet"
                tasks.append(self._part(part, (first, last), answer))
        return tasks

    def _merge(self, parts: Sequence[Path]) -> None:
        with session(self._folder) as duck:
            duck.write(f'{parquet(parts)} ORDER BY "row"', self._answer)


async def from_source(
    source: Callable[[Path], FrameSource],
    scratch: Path,
    lost: Callable[[Sequence[str]], HeadwaterError],
    read: Callable[[FrameSource, Path], Awaitable[T]],
) -> T:
    """Read from a source, which is called again if its files were merged meanwhile.

    Both are given a folder: for the tail of the source, and for files in between. ``lost`` is given
    the names of files that are gone.
    """
    for _ in range(_ATTEMPTS):
        with private_folder(scratch) as folder:
            rows = await in_thread(source, folder)
            try:
                return await read(rows, folder)
            except (duckdb.OperationalError, TaskFailedError) as error:
                gone = rows.gone(error)
                if not gone:
                    raise
    raise lost(gone)


async def answer_frame(
    query: FrameQuery,
    answer: Path,
    source: Callable[[Path], FrameSource],
    runner: Runner,
    scratch: Path,
    progress: Callable[[int], None] | None,
    lost: Callable[[Sequence[str]], HeadwaterError],
) -> None:
    """Answer a frame from a source."""

    async def read(rows: FrameSource, folder: Path) -> None:
        await FramePlan(query, rows, answer, folder).run(runner, progress)

    await from_source(source, scratch, lost, read)


def group_count(points: int, rows: int, slots: int = 1) -> int:
    """Return into how many ranges of buckets a frame is divided, a power of two.

    Of tasks that run at the same time each gets a part of what one alone may have, and there are
    enough for all slots.
    """
    parts = 1 if slots == 1 else _PARTS
    groups = 1
    while groups < BUCKETS and (
        points * parts > groups * MAX_POINTS
        or rows * parts > groups * MAX_ROWS
        or 1 < groups < slots
    ):
        groups *= 2
    return groups


class _Form(NamedTuple):
    """The type of a kind's column in an answer, and a stored value in it (NULL if misfit)."""

    type: str
    value: str


# By the JSON text of a value, in which a number without a fraction is a float too.
_FORMS: Mapping[Kind, _Form] = {
    "int": _Form(
        "BIGINT",
        "coalesce(value_int, CASE WHEN regexp_full_match(value_json, '-?[0-9]+')"
        " THEN TRY_CAST(value_json AS BIGINT) END)",
    ),
    "float": _Form(
        "DOUBLE",
        f"coalesce({VALUE_FLOAT}, value_int, CASE WHEN regexp_matches(value_json, '^-?[0-9]')"
        " THEN TRY_CAST(value_json AS DOUBLE) END)",
    ),
    "bool": _Form(
        "BOOLEAN",
        "coalesce(value_bool, CASE value_json WHEN 'true' THEN true WHEN 'false' THEN false END)",
    ),
    "text": _Form("VARCHAR", f"coalesce(value_text, {_STRING}, {_TIME_TEXT})"),
    "time": _Form(
        "TIMESTAMPTZ",
        f"coalesce(value_time, CASE WHEN regexp_matches(coalesce(value_text, {_STRING}),"
        f" {_HAS_ZONE}) THEN TRY_CAST(coalesce(value_text, {_STRING}) AS TIMESTAMPTZ) END)",
    ),
    "json": _Form("VARCHAR", f"nullif({VALUE_AS_JSON}, 'null')"),
    "none": _Form("VARCHAR", "NULL"),
}


class FramePart(msgspec.Struct, frozen=True, kw_only=True):
    """A task: answer some points of a frame from the rows of history about their entities."""

    points: Path
    columns: Sequence[FrameColumn]
    known: bool
    extra: Mapping[str, Path]
    files: Sequence[str]
    """Segments, or files exported from history."""
    tail: Path | None
    longest: int
    storage: ObjectStorage | None
    buckets: tuple[int, int] | None
    """The range of buckets that all points are in, if it is known."""
    answer: Path
    scratch: Path
    threads: int = MAX_THREADS

    @property
    def inputs(self) -> Sequence[Path]:
        """The files that it reads from file systems."""
        files = [] if self.storage is not None else [Path(file) for file in self.files]
        tail = [] if self.tail is None else [self.tail]
        return [self.points, *files, *tail, *self.extra.values()]

    def run(self) -> int:
        """Write the answer in the order of ``row``; return the number of points."""
        with session(self.scratch, threads=self.threads) as duck:
            if self.storage is not None:
                self.storage.open(duck)
            open_rows(duck, HISTORY, self.files, self.tail, longest=self.longest)
            duck.run(_POINTS.format(file=glob_literal(self.points)))
            for number, column in enumerate(self.columns):
                self._add_column(duck, number, column)
            return duck.write_whole(self._assembled(), self.answer)

    def _add_column(self, duck: Session, number: int, column: FrameColumn) -> None:
        form = _FORMS[column.kind]
        value, counts = f"CAST({form.value} AS {form.type})", _counts(column)
        duck.run(_COLUMN.format(number=number, counts=counts, past=self._past(column, value)))
        misfit = f"CASE WHEN {value} IS NULL THEN nullif({VALUE_AS_JSON}, 'null') END"
        if scalar(duck.run(_HAS_NULLS.format(number=number))) and scalar(
            duck.run(_HAS_MISFITS.format(misfit=misfit, rows=self._rows(column)))
        ):
            sql = _MISFITS.format(counts=counts, past=self._past(column, misfit))
            if (row := duck.run(sql).fetchone()) and row[0]:
                raise misfit_error(column, count=row[0], example=row[1], entity_id=row[2])

    def _past(self, column: FrameColumn, value: str) -> str:
        """Return the query of the rows that can be answers, with an expression as their value."""
        past = _PAST_KNOWN if self.known else _PAST_TRUE
        return past.format(rows=_ROWS.format(value=value, rows=self._rows(column)))

    def _rows(self, column: FrameColumn) -> str:
        rows = f"SELECT * FROM headwater.history WHERE feature = {text(column.series)}"
        if self.buckets is not None:
            rows += " AND bucket BETWEEN {} AND {}".format(*self.buckets)
        if column.series in self.extra and not self.known:
            file = glob_literal(self.extra[column.series])
            rows += _EXTRA.format(series=text(column.series), kind=text(column.kind), file=file)
        return rows

    def _assembled(self) -> str:
        columns = range(len(self.columns))
        values = [f", column_{n}.value AS v{n}, column_{n}.true_from AS a{n}" for n in columns]
        # Each table is in the order of the rows already.
        tables = [f" POSITIONAL JOIN column_{n}" for n in columns]
        return f'SELECT "row"{"".join(values)} FROM numbers{"".join(tables)}'


def _counts(column: FrameColumn) -> str:
    """Return the condition under which a row that was found counts at its point."""
    counts = _lasts(column.ttl)
    for until, ttl in reversed(column.earlier_ttls):
        counts = f"CASE WHEN visible_from < {until} THEN {_lasts(ttl)} ELSE {counts} END"
    return counts


def _lasts(ttl: timedelta | None) -> str:
    return "true" if ttl is None else f'points."at" - {ttl // _MICROSECOND} < visible_from'
