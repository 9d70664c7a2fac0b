"""Frames in files: Parquet, or CSV."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import duckdb

from headwater.core.duckdb_session import Session, connect, glob_literal, headline, scalar
from headwater.core.sql_literals import text
from headwater.errors import InvalidInputError
from headwater.history.frames.entity_frame import EntityFrame, FrameResult, Spine, TimeRemedies
from headwater.history.frames.parquet_footer import FooterError, check_footer

CSV = ".csv"
SUFFIXES = (".parquet", CSV)
# An empty text in quotes is a text; without quotes, the value is missing.
_CSV = "read_csv({}, hive_partitioning = false, header = true, allow_quoted_nulls = false, {})"


# Ten times what the footer of a table has that is within the limits of a server.
_LARGEST_FOOTER = 64 << 20
_END = 8  # the length of the footer, and a mark
_MARK = b"PAR1"
_LEAVES = "SELECT count(*) FROM parquet_schema({}) WHERE coalesce(num_children, 0) = 0"
# The rows that are read are those of the row groups; a list has more values than rows.
_VALUES = """
SELECT coalesce(max(count), 0) FROM (
    SELECT greatest(sum(abs(num_values)), sum(abs(row_group_num_rows))) AS count
    FROM parquet_metadata({}) GROUP BY column_id
)
"""
_DELIMITERS = (b",", b";", b"|", b"\t")
_LINE_ENDS = (b"\n", b"\r")
_SNIFFED_LINES = 20_480
_LONGEST_LINE = 2 << 20
_BYTES_AT_ONCE = 1 << 20


class TableSize(NamedTuple):
    """The columns of a file, and the most values that one of them has."""

    columns: int
    rows: int


def table_size(file: Path, most_columns: int) -> TableSize:
    """Return the size of a file, at most, without reading its values.

    The rows are not counted if there are more columns.
    """
    return (_csv_size if file.suffix == CSV else _parquet_size)(file, most_columns)


def _parquet_size(file: Path, most_columns: int) -> TableSize:
    with file.open("rb") as opened:
        before_end = opened.seek(max(0, file.stat().st_size - _END))
        end = opened.read(_END)
        footer = int.from_bytes(end[:4], "little")
        if footer > _LARGEST_FOOTER:
            raise InvalidInputError(
                f"{file} cannot be read: its footer has {footer} bytes; write it with fewer row "
                "groups"
            )
        opened.seek(max(0, before_end - footer))
        metadata = opened.read(footer)
    try:
        if end.endswith(_MARK):  # DuckDB reads no other
            check_footer(metadata)
        with connect(threads=1) as connection:
            columns: int = scalar(connection.execute(_LEAVES.format(glob_literal(file))))
            if columns > most_columns:
                return TableSize(columns, 0)
            return TableSize(
                columns, scalar(connection.execute(_VALUES.format(glob_literal(file))))
            )
    except FooterError as error:
        raise InvalidInputError(f"{file} cannot be read: {error}") from error
    except duckdb.Error as error:
        raise InvalidInputError(f"{file} cannot be read: {headline(error)}") from error


def _csv_size(file: Path, most_columns: int) -> TableSize:
    with file.open("rb") as opened:
        # DuckDB takes the columns from the lines in which it looks for the form of the file.
        lines = (opened.readline(_LONGEST_LINE) for _ in range(_SNIFFED_LINES))
        columns = 1 + max(max(map(line.count, _DELIMITERS)) for line in lines)
        if columns > most_columns:
            return TableSize(columns, 0)
        opened.seek(0)
        ends = dict.fromkeys(_LINE_ENDS, 0)
        last = b""
        while part := opened.read(_BYTES_AT_ONCE):
            last = part[-1:]
            ends = {end: count + part.count(end) for end, count in ends.items()}
    # The first line has the names; the last one may have no end.
    return TableSize(columns, max(ends.values()) - (last in _LINE_ENDS))


def rows_of(file: Path) -> str:
    """Return the SQL of the rows of a file; raise InvalidInputError if it cannot have any.

    The columns of CSV are the texts of the file, as they are.
    """
    if not file.is_file():
        raise InvalidInputError(f"there is no file {file}")
    if file.suffix not in SUFFIXES:
        raise InvalidInputError(f"{file} is not a file that ends with {' or '.join(SUFFIXES)}")
    if file.suffix == CSV:
        return _CSV.format(glob_literal(file), "all_varchar = true")
    return f"read_parquet({glob_literal(file)}, hive_partitioning = false)"


def typed_rows(file: Path, columns: Sequence[str], typed: Collection[str]) -> str:
    """Return the SQL of the rows of a file; in CSV, only some columns get types, as they look."""
    rows = rows_of(file)
    if file.suffix != CSV:
        return rows
    texts = ", ".join(f"{text(name)}: 'VARCHAR'" for name in columns if name not in typed)
    types = f"types = {{{texts}}}" if texts else "auto_detect = true"
    return _CSV.format(glob_literal(file), types)


class FileFrame(EntityFrame):
    """A file that may be larger than memory; the result is another file."""

    remedies = TimeRemedies(
        naive="write them with one, such as 2026-01-31T12:00:00Z",
        other="write times with a time zone, such as 2026-01-31T12:00:00Z",
        epoch="write them as times, such as 2026-01-31T12:00:00Z",
    )

    def __init__(self, file: Path, output: Path | None) -> None:
        self._file = file
        self.output = output or file.with_name(f"{file.stem}.features.parquet")
        self._rows = self._given = rows_of(file)
        if self.output.exists():
            if self.output.samefile(self._file):
                raise InvalidInputError(
                    f"input and output are the same file, {self.output}; name another output file"
                )
            if output is None:
                raise InvalidInputError(
                    f"{self.output} exists already; remove it, or name the file to write or to "
                    "replace with output="
                )
        if self.output.suffix not in SUFFIXES:
            raise InvalidInputError(
                f"the output {self.output} must end with {' or '.join(SUFFIXES)}"
            )
        if not self.output.parent.is_dir():
            raise InvalidInputError(
                f"the folder {self.output.parent} of the output does not exist; create it"
            )

    def columns(self) -> Sequence[str]:
        try:
            with connect(threads=1) as connection:
                return list(connection.sql(f"FROM {self._given}").columns)
        except duckdb.Error as error:
            raise InvalidInputError(f"{self._file} cannot be read: {headline(error)}") from error

    def load(self, duck: Session, spine: Spine) -> None:
        texts = {entity.id_field for entity in spine.entities if entity.id_type is str}
        self._rows = typed_rows(self._file, self.columns(), {*spine.columns.values()} - texts)
        duck.run(
            f"CREATE VIEW frame AS SELECT row_number() OVER () - 1 AS row, {spine.selected}"
            f" FROM {self._rows}"
        )

    def attach(self, duck: Session, result: FrameResult) -> Any:
        # A text of CSV stays as it is; in Parquet, ids and times have their types.
        rows = self._given if self.output.suffix == CSV else self._rows
        partial = self.output.with_name(f".{self.output.name}.{uuid4().hex}")
        try:
            joined = (
                f"SELECT given.*, {result.named} FROM {rows} AS given"
                f" POSITIONAL JOIN ({result.query}) AS result"
            )
            if self.output.suffix == CSV:
                duck.run(f"COPY ({joined}) TO {text(partial)} (FORMAT csv)")
            else:
                duck.write(joined, partial, result.metadata)
            os.replace(partial, self.output)
        finally:
            partial.unlink(missing_ok=True)
        return self.output
