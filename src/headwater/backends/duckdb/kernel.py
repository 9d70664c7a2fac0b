"""The point-in-time join: one ASOF join for each column of a frame, over Parquet files and a tail.

DuckDB's ASOF join picks any of several rows that match equally well. So ties are resolved before
it: of the rows that become visible at one moment, only the one that counts remains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec

from headwater.backends.duckdb.segment_schema import HISTORY, open_rows
from headwater.core.codec import Kind
from headwater.core.duckdb_session import Session, glob_literal, scalar, session
from headwater.core.sql_literals import text
from headwater.ports import FrameColumn, misfit_error
from headwater.ports.history import VALUE_AS_JSON, VALUE_FLOAT

MEMORY_LIMIT = "1GB"

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
SELECT id, seq, epoch_us(as_of) AS true_from, epoch_us(written_at) AS known_from,
       {value} AS value, {misfit} AS misfit
FROM ({rows}) JOIN ids USING (entity_id)
"""

# The order in which values of one moment were written, as one number.
_WRITTEN = f"known_from::HUGEINT * {2**64} + seq"

_PAST_TRUE = f"""
CREATE OR REPLACE TABLE past AS
SELECT id, true_from, true_from AS visible_from,
       arg_max_null(value, {_WRITTEN}) AS value, arg_max_null(misfit, {_WRITTEN}) AS misfit
FROM ({{rows}})
GROUP BY id, true_from
"""

# A value that is outranked when it becomes visible never counts. The rank of the others rises with
# the time they become visible, so the last visible value is the answer.
_PAST_KNOWN = """
CREATE OR REPLACE TABLE past AS
SELECT id, true_from, known_from AS visible_from, value, misfit
FROM (
    SELECT *, row_number() OVER (PARTITION BY id ORDER BY true_from, known_from, seq) AS rank
    FROM ({rows})
)
QUALIFY rank = max(rank) OVER (PARTITION BY id ORDER BY known_from)
"""

_JOIN = """
FROM points
ASOF LEFT JOIN past ON past.id = points.id AND past.visible_from <= points."at"
"""

_MISFITS = f"""
SELECT count(*), min(misfit), min(entity_id)
{_JOIN}
JOIN ids ON ids.id = points.id
WHERE misfit IS NOT NULL AND {{counts}}
"""

_STRING = "CASE WHEN value_json[1] = '\"' THEN value_json ->> '$' END"
_TIME_TEXT = """strftime(CAST(value_time AS TIMESTAMP), '%Y-%m-%dT%H:%M:%S.%fZ')"""
_HAS_ZONE = r"'^\d{4}-\d\d-\d\d[T ].*(Z|[+-]\d\d(:?\d\d)?)$'"


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
    files: Sequence[Path]
    """Segments, or files exported from history."""
    tail: Path | None
    longest: int
    buckets: tuple[int, int] | None
    """The range of buckets that all points are in, if it is known."""
    answer: Path
    scratch: Path

    def run(self) -> int:
        """Write the answer in the order of ``row``; return the number of points."""
        with session(self.scratch, memory_limit=MEMORY_LIMIT) as duck:
            open_rows(duck, HISTORY, self.files, self.tail, longest=self.longest)
            duck.run(_POINTS.format(file=glob_literal(self.points)))
            for number, column in enumerate(self.columns):
                self._add_column(duck, number, column)
            return duck.write(self._assembled(), self.answer)

    def _add_column(self, duck: Session, number: int, column: FrameColumn) -> None:
        form = _FORMS[column.kind]
        rows = _ROWS.format(
            value=f"CAST({form.value} AS {form.type})",
            misfit=f"CASE WHEN value IS NULL THEN nullif({VALUE_AS_JSON}, 'null') END",
            rows=self._rows(column),
        )
        duck.run((_PAST_KNOWN if self.known else _PAST_TRUE).format(rows=rows))
        counts = _counts(column)
        if scalar(duck.run("SELECT count(misfit) FROM past")):
            row = duck.run(_MISFITS.format(counts=counts)).fetchone()
            if row is not None and row[0]:
                raise misfit_error(column, count=row[0], example=row[1], entity_id=row[2])
        duck.run(
            f"CREATE TABLE column_{number} AS"
            f" SELECT CASE WHEN {counts} THEN value END AS value,"
            f' CASE WHEN {counts} THEN true_from END AS true_from {_JOIN} ORDER BY points."row"'
        )

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
