"""The answers to a frame, collected by DuckDB in the types of their kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from headwater.backends.postgres.copying import CsvFile
from headwater.core.codec import Kind
from headwater.core.duckdb_session import Session, parquet
from headwater.ports import FrameColumn, FrameQuery, misfit_error

COLUMNS_AT_ONCE = 32

_MISFITS = """
SELECT misfit.place, count(*) OVER (PARTITION BY misfit.place), misfit.value, entity_id
FROM ({rows}) JOIN ({points}) USING ("row")
ORDER BY misfit.place, misfit.value LIMIT 1
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
