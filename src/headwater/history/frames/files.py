"""Frames in files: Parquet, or CSV."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb

from headwater.core.duckdb_session import Session, glob_literal, headline
from headwater.core.sql_literals import text
from headwater.errors import InvalidInputError
from headwater.history.frames.entity_frame import EntityFrame, FrameResult, Spine, TimeRemedies

CSV = ".csv"
SUFFIXES = (".parquet", CSV)
# An empty text in quotes is a text; without quotes, the value is missing.
_CSV = "read_csv({}, hive_partitioning = false, header = true, allow_quoted_nulls = false, {})"


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
            with duckdb.connect(":memory:") as connection:
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
                duck.write(joined, partial)
            os.replace(partial, self.output)
        finally:
            partial.unlink(missing_ok=True)
        return self.output
