"""The answers to a frame, collected by DuckDB in the types of their kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from headwater.backends.postgres.copying import CsvFile
from headwater.core.codec import Kind
from headwater.core.duckdb_session import Session, parquet
from headwater.core.sql_literals import text
from headwater.ports import FrameColumn, FrameQuery, misfit_error

COLUMNS_AT_ONCE = 32

_CREATE_MISFITS = """
CREATE OR REPLACE TABLE misfits ("row" BIGINT, place BIGINT, value VARCHAR)
"""
_MISFITS = """
SELECT place, count(*) OVER (PARTITION BY place), value, entity_id
FROM misfits JOIN ({points}) USING ("row")
ORDER BY place, value LIMIT 1
"""

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
            self._duck.run(f"CREATE OR REPLACE TABLE {group.table} ({', '.join(columns)})")
        self._duck.run(_CREATE_MISFITS)

    def add(self, group: ColumnGroup, file: CsvFile) -> None:
        """Add rows with the JSON text and the ``as_of`` of each column."""
        types, values = {"row": "BIGINT"}, ['"row"']
        for n, column in group.numbered:
            types |= {f"t{n}": "VARCHAR", f"a{n}": "TIMESTAMPTZ"}
            given = f"nullif(t{n}, 'null')"
            form = _FORMS[column.kind].value.format(given)
            values += [f"{form} AS v{n}", f"epoch_us(a{n}) AS a{n}"]
            values += [f"CASE WHEN v{n} IS NULL THEN {given} END AS misfit{n}"]
        rows = file.rows(types)
        self._duck.run(f"CREATE OR REPLACE TABLE portion AS SELECT {', '.join(values)} FROM {rows}")
        self._duck.run(f"INSERT INTO {group.table} SELECT COLUMNS('^([va]\\d+|row)$') FROM portion")
        for n, _ in group.numbered:
            self._duck.run(
                f'INSERT INTO misfits SELECT "row", {n}, misfit{n} FROM portion'
                f" WHERE misfit{n} IS NOT NULL"
            )

    def write(self, answer: Path) -> None:
        """Write the answer in the order of the rows, or raise FeatureValueError."""
        first = self._duck.run(_MISFITS.format(points=parquet([self._query.points]))).fetchone()
        if first is not None:
            place, count, example, entity_id = first
            column = self._query.columns[place]
            raise misfit_error(column, count=count, example=example, entity_id=entity_id)
        tables = self.groups[0].table + "".join(
            f' JOIN {group.table} USING ("row")' for group in self.groups[1:]
        )
        self._duck.run(
            f'COPY (SELECT * FROM {tables} ORDER BY "row") TO {text(answer)} (FORMAT parquet)'
        )
