"""A DuckDB for one piece of work: in memory, offline, in UTC, with a scratch folder of its own."""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb
import msgspec

_MOST_THREADS = 4
_SMALLEST_OBJECT_LIMIT = 16 << 20

_encode_lines = msgspec.json.Encoder().encode_lines


class Session:
    """One connection, its scratch folder, and the segment files that it reads."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, folder: Path) -> None:
        self.connection = connection
        self.folder = folder
        self.segments: list[Path] = []

    def run(self, sql: str) -> duckdb.DuckDBPyConnection:
        return self.connection.execute(sql)

    def load(self, table: str, file: Path, columns: Mapping[str, str], *, longest: int = 0) -> None:
        """Makes a table of a file of JSON lines, the longest of which has so many bytes."""
        types = ", ".join(f"{identifier(name)}: {text(kind)}" for name, kind in columns.items())
        self.run(
            f"CREATE TABLE {table} AS SELECT * FROM read_json({literally(file)},"
            f" format = 'newline_delimited', columns = {{{types}}}, hive_partitioning = false,"
            f" maximum_object_size = {max(_SMALLEST_OBJECT_LIMIT, longest + 1)})"
        )

    def load_rows(
        self, table: str, rows: Sequence[msgspec.Struct], columns: Mapping[str, str]
    ) -> None:
        """Makes a table of rows; bound parameters would take a hundred times as long."""
        file = self.folder / f"{table}.ndjson"
        lines = _encode_lines(rows)
        file.write_bytes(lines)
        longest = max(map(len, lines.splitlines()))
        self.load(table, file, columns, longest=longest)


@contextmanager
def session(scratch: Path) -> Iterator[Session]:
    """Opens a DuckDB that shares nothing with any other, and leaves nothing behind."""
    with (
        _private_folder(scratch) as folder,
        closing(
            duckdb.connect(
                ":memory:",
                config={
                    "threads": min(_MOST_THREADS, os.cpu_count() or 1),
                    # Two instances that spill into one folder overwrite each other's files.
                    "temp_directory": str(folder),
                    "autoinstall_known_extensions": False,
                    "autoload_known_extensions": False,
                    # A query must not find Python variables of ours by their names.
                    "python_enable_replacements": False,
                },
            )
        ) as connection,
    ):
        connection.execute("SET TimeZone = 'UTC'")
        yield Session(connection, folder)


@contextmanager
def _private_folder(scratch: Path) -> Iterator[Path]:
    with _locked(scratch, fcntl.LOCK_SH):
        folder = Path(tempfile.mkdtemp(dir=scratch))
        owned = os.open(folder, os.O_RDONLY)
        fcntl.flock(owned, fcntl.LOCK_EX)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(owned)


def sweep(scratch: Path) -> None:
    """Removes the scratch folders of processes that died: those that nobody holds locked."""
    # The exclusive lock keeps out a folder that is made but not yet locked.
    with suppress(BlockingIOError), _locked(scratch, fcntl.LOCK_EX | fcntl.LOCK_NB):
        for folder in filter(Path.is_dir, scratch.iterdir()):
            with suppress(OSError), _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
                shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path, how: int) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, how)
        yield
    finally:
        os.close(handle)


def text(value: str | Path) -> str:
    """A text as an SQL literal."""
    return "'" + str(value).replace("'", "''") + "'"


def texts(values: Sequence[str]) -> str:
    """Texts as the inside of an SQL list."""
    return ", ".join(map(text, values))


def literally(path: Path) -> str:
    """A path as an SQL literal, for functions that would take it for a pattern."""
    return text(glob.escape(str(path)))


def parquet(files: Sequence[Path]) -> str:
    """The rows of our own Parquet files, whatever the folders above them are called."""
    names = ", ".join(map(literally, files))
    return f"SELECT * FROM read_parquet([{names}], hive_partitioning = false)"


def identifier(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def headline(error: duckdb.Error) -> str:
    """The first line of what DuckDB says is wrong."""
    return str(error).partition("\n")[0]


def scalar(answer: duckdb.DuckDBPyConnection) -> Any:
    """The single value of a result with one row and one column."""
    row = answer.fetchone()
    return row[0] if row else None
