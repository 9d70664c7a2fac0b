"""DuckDB sessions: in memory, offline, in UTC, each with a private scratch folder."""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar
from uuid import uuid4

import duckdb
import msgspec

from headwater.core.interruptible import in_thread, interrupted_by
from headwater.core.session_memory import session_memory
from headwater.core.sql_literals import text
from headwater.errors import InvalidInputError

_ALIVE = "alive.lock"
_EXCLUSIVE = fcntl.LOCK_EX | fcntl.LOCK_NB
MAX_THREADS = 4
ROW_GROUP = 122_880
"""As many rows of a table, or of a file that DuckDB wrote, are the work of one thread."""
# What a session may write to its scratch folder, for each byte of its memory.
_DISK_BYTES = 16
_MIN_OBJECT_LIMIT = 16 << 20
# The texts of a dictionary do not count as memory of a session.
_LARGEST_DICTIONARY = 64 << 20
_FLOATS = ("FLOAT", "DOUBLE")
_IS_NEGATIVE_ZERO = "({0} = 0 AND signbit({0}))"
_MAY_HAVE_NEGATIVE_ZERO = "contains(CAST({0} AS VARCHAR), '-0.0')"

T = TypeVar("T")

_encode_lines = msgspec.json.Encoder().encode_lines


class Session:
    """A connection, its scratch folder, and the segment files that it reads."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, folder: Path) -> None:
        self.connection = connection
        self.folder = folder
        self.segments: list[str] = []
        self._is_interrupted = False

    def run(self, sql: str) -> duckdb.DuckDBPyConnection:
        if self._is_interrupted:
            raise duckdb.InterruptException("the session was interrupted")
        return self.connection.execute(sql)

    def interrupt(self) -> None:
        """End the statement that runs, and run no other."""
        self._is_interrupted = True
        self.connection.interrupt()

    async def in_thread(self, work: Callable[..., T], *args: Any) -> T:
        """Run work on the connection in a thread; interrupt it if the caller is cancelled."""

        def watched() -> T:
            with interrupted_by(self.interrupt):
                return work(*args)

        return await in_thread(watched)

    def load(
        self, table: str, file: Path | None, columns: Mapping[str, str], *, longest: int = 0
    ) -> None:
        """Create a table from JSON lines; ``longest`` is the length of the longest line."""
        if file is None:
            types = ", ".join(f"{identifier(name)} {kind}" for name, kind in columns.items())
            self.run(f"CREATE TABLE {table} ({types})")
            return
        types = ", ".join(f"{identifier(name)}: {text(kind)}" for name, kind in columns.items())
        self.run(
            f"CREATE TABLE {table} AS SELECT * FROM read_json({glob_literal(file)},"
            f" format = 'newline_delimited', columns = {{{types}}}, hive_partitioning = false,"
            f" maximum_object_size = {max(_MIN_OBJECT_LIMIT, longest + 1)})"
        )

    def load_rows(self, table: str, rows: Sequence[object], columns: Mapping[str, str]) -> None:
        """Create a table from rows; bound parameters would take a hundred times as long."""
        file = self.folder / f"{table}.ndjson"
        lines = _encode_lines(rows)
        file.write_bytes(lines)
        longest = max(map(len, lines.splitlines()), default=0)
        self.load(table, file, columns, longest=longest)

    def write(
        self, rows: str, file: Path, metadata: Mapping[str, str] = MappingProxyType({})
    ) -> int:
        """Write the rows of a query to a Parquet file, with metadata; return their number.

        A dictionary has one entry for 0.0 and -0.0, so a file with the latter has no dictionaries.
        Others have, because repeated texts may take a hundred times the space without.
        """
        limit = ", DICTIONARY_SIZE_LIMIT 0" if self._has_negative_zeros(rows) else ""
        limit += f", STRING_DICTIONARY_PAGE_SIZE_LIMIT {_LARGEST_DICTIONARY}"
        if metadata:
            pairs = ", ".join(f"{identifier(name)}: {text(it)}" for name, it in metadata.items())
            limit += f", KV_METADATA {{{pairs}}}"
        sql = f"COPY ({rows}) TO {text(file)} (FORMAT parquet, USE_TMP_FILE false{limit})"
        return int(scalar(self.run(sql)))

    def write_whole(self, rows: str, file: Path) -> int:
        """Write a file so that it is there as a whole or not at all, also if others write it."""
        unfinished = file.with_name(f"{file.stem}-{uuid4().hex}.unfinished")
        count = self.write(rows, unfinished)
        unfinished.replace(file)
        return count

    def _has_negative_zeros(self, rows: str) -> bool:
        columns = self.run(f"DESCRIBE SELECT * FROM ({rows})").fetchall()
        checks = [
            (_IS_NEGATIVE_ZERO if kind in _FLOATS else _MAY_HAVE_NEGATIVE_ZERO).format(
                identifier(name)
            )
            for name, kind, *_ in columns
            if any(type_name in kind for type_name in _FLOATS)
        ]
        if not checks:
            return False
        return bool(scalar(self.run(f"SELECT bool_or({' OR '.join(checks)}) FROM ({rows})")))


@contextmanager
def session(scratch: Path, *, threads: int = MAX_THREADS) -> Iterator[Session]:
    """Open an isolated DuckDB session; its scratch folder is removed afterwards.

    Operators that need more memory than `session_memory` write to the scratch folder; others raise
    InvalidInputError.
    """
    with (
        private_folder(scratch) as folder,
        closing(connect(folder, threads=threads)) as connection,
    ):
        opened = Session(connection, folder)
        try:
            with interrupted_by(opened.interrupt):
                yield opened
        except duckdb.OutOfMemoryException as error:
            raise InvalidInputError(headline(error)) from error


def connect(folder: Path | None = None, *, threads: int = MAX_THREADS) -> duckdb.DuckDBPyConnection:
    """Open a DuckDB in memory; larger data is written to a temporary folder."""
    memory = session_memory()
    connection = duckdb.connect(
        ":memory:",
        config={
            "threads": min(threads, os.cpu_count() or 1),
            "memory_limit": f"{memory}B",
            # Two instances that spill into the same folder overwrite each other's files.
            "temp_directory": "" if folder is None else str(folder),
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            # A query must not access Python variables by name.
            "python_enable_replacements": False,
        },
    )
    # DuckDB takes some programs for terminals, and would draw on their standard output.
    # The pragma, because in a notebook without ipywidgets the setting itself cannot be changed.
    connection.execute("SET TimeZone = 'UTC'; PRAGMA disable_progress_bar")
    if folder is not None:
        connection.execute(f"SET max_temp_directory_size = '{memory * _DISK_BYTES}B'")
    return connection


@contextmanager
def private_folder(scratch: Path) -> Iterator[Path]:
    """Create a folder that is removed afterwards, or by ``sweep`` if this process dies.

    It can serve as the scratch folder of sessions.
    """
    with _locked(scratch, fcntl.LOCK_SH):
        folder = Path(tempfile.mkdtemp(dir=scratch))
        handle = os.open(folder / _ALIVE, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def sweep(scratch: Path) -> None:
    """Remove the scratch folders of dead processes, which are no longer locked."""
    # The exclusive lock waits out a process that has created a folder but not locked it yet.
    with suppress(BlockingIOError), _locked(scratch, _EXCLUSIVE):
        for folder in filter(Path.is_dir, scratch.iterdir()):
            with suppress(BlockingIOError):
                with suppress(FileNotFoundError), _locked(folder / _ALIVE, _EXCLUSIVE):
                    pass
                shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(path: Path, mode: int) -> Iterator[None]:
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, mode)
        yield
    finally:
        os.close(handle)


def column_types(columns: str) -> dict[str, str]:
    """Return the types of columns by name, of a text such as ``n BIGINT, text VARCHAR``."""
    return dict(column.split(" ") for column in columns.split(", "))


def glob_literal(path: Path | str) -> str:
    """Return a path as an SQL literal for functions that accept glob patterns."""
    return text(glob.escape(str(path)))


def parquet(files: Sequence[Path | str], *, by_name: bool = False) -> str:
    """Return a query for the rows of files, which may lack columns of others with ``by_name``."""
    names = ", ".join(map(glob_literal, files))
    # The names of their folders are no columns.
    options = f"hive_partitioning = false, union_by_name = {by_name}"
    return f"SELECT * FROM read_parquet([{names}], {options})"


def identifier(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def headline(error: duckdb.Error) -> str:
    """Return the first line of a DuckDB error."""
    if isinstance(error, duckdb.OutOfMemoryException):
        return (
            f"it needs more than {session_memory()} bytes of memory; ask for less at once, or "
            "raise offline.max_session_bytes"
        )
    return str(error).partition("\n")[0]


def scalar(answer: duckdb.DuckDBPyConnection) -> Any:
    """Return the value of a result with one row and one column."""
    row = answer.fetchone()
    return row[0] if row else None
