"""The embedded store's folder: made private, opened safely, and its troubles told in words."""

from __future__ import annotations

import fcntl
import os
import re
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from headwater.errors import BackendError, ClosedError, ConfigError, HomeError


def _parts() -> dict[int, str]:
    schema = files(__package__).joinpath("schema.sql").read_text()
    _, *parts = re.split(r"^-- Version (\d+)$", schema, flags=re.MULTILINE)
    return {int(version): sql for version, sql in zip(parts[::2], parts[1::2], strict=True)}


_PARTS = _parts()
SCHEMA_VERSION = max(_PARTS)
"""The version of the tables that this version of Headwater works with."""

CHECKPOINT_BYTES = 8 << 20
BUSY_SECONDS = 30.0


class WriteLock:
    """Held around every write transaction and checkpoint, one process at a time.

    SQLite's own busy waiting lets one writer starve another for seconds; a lock that the kernel
    queues does not.
    """

    def __init__(self, file: Path) -> None:
        self._handle = os.open(file, os.O_RDWR)

    def __enter__(self) -> None:
        fcntl.flock(self._handle, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._handle, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._handle)


class Home:
    """One folder: the database, its lock, the running workers' files and the segments."""

    def __init__(self, path: Path, partitions: int) -> None:
        self.path = path
        self.partitions = partitions
        self.database = path / "headwater.db"
        self.segments = path / "segments"
        self.workers = path / "workers"
        self.scratch = path / "scratch"
        self._lock_file = path / "write.lock"
        self._pid = os.getpid()
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._closed = False

    def open(self) -> None:
        """Makes the folder and the tables, or what they lack; refuses those of another kind."""
        try:
            for folder in (self.path, self.segments, self.workers, self.scratch):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock_file.touch(mode=0o600)
        except OSError as error:
            raise self.translate_os(error) from error
        with (
            self.translated(),
            closing(self.write_lock()) as lock,
            lock,
            closing(self.connect()) as connection,
        ):
            self._upgrade(connection)
            self._check_partitions(connection)

    def _upgrade(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise HomeError(
                str(self.path),
                f"is of a newer Headwater (schema {version}, this one knows {SCHEMA_VERSION})",
                "upgrade headwater, or use another HEADWATER_HOME; nothing was changed",
            )
        missing = "".join(sql for number, sql in _PARTS.items() if number > version)
        if version == 0:
            missing += f"INSERT INTO meta VALUES ('partitions', '{self.partitions}');\n"
        if missing:
            connection.executescript(
                f"BEGIN IMMEDIATE;\n{missing}PRAGMA user_version = {SCHEMA_VERSION};\nCOMMIT;"
            )

    def _check_partitions(self, connection: sqlite3.Connection) -> None:
        (count,) = connection.execute("SELECT value FROM meta WHERE key = 'partitions'").fetchone()
        if int(count) != self.partitions:
            raise ConfigError(
                f"the store in {self.path} was made with {count} partitions, the settings say "
                f"{self.partitions}; the number is fixed when a store is made: set "
                f"HEADWATER_PARTITIONS={count}, or use another HEADWATER_HOME"
            )

    def connect(self) -> sqlite3.Connection:
        """A new connection with the settings that every connection here has."""
        connection = sqlite3.connect(
            self.database,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        # Checkpoints run only under the write lock (see Writer): SQLite before 3.51.3 can lose a
        # WAL reset that races with another process's checkpoint.
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        # A restarted WAL is cut back to this size, so a larger one means there is work to do.
        connection.execute(f"PRAGMA journal_size_limit = {CHECKPOINT_BYTES}")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA cache_size = -65536")
        connection.execute("PRAGMA mmap_size = 1073741824")
        return connection

    def check_open(self) -> None:
        """Refuses use after the end, and in a child process: no connection survives a fork."""
        if self._pid != os.getpid():
            raise ClosedError(
                "this store was opened before a fork and cannot be used in the child process; "
                "make a FeatureStore there"
            )
        if self._closed:
            raise ClosedError("this store is closed")

    @property
    def reader(self) -> sqlite3.Connection:
        """This thread's connection for reading; a read is quicker than a hop to another thread."""
        if self._closed or self._pid != os.getpid():
            self.check_open()
        try:
            connection: sqlite3.Connection = self._local.connection
        except AttributeError:
            connection = self._local.connection = self.connect()
            connection.execute("PRAGMA query_only = ON")
            self._connections.append(connection)
        return connection

    def read(self, sql: str, arguments: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
        """The rows of a query."""
        try:
            return self.reader.execute(sql, arguments).fetchall()
        except sqlite3.Error as error:
            raise self.translate(error) from error

    def write_lock(self) -> WriteLock:
        """A handle on the lock that all writers of all processes share."""
        return WriteLock(self._lock_file)

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Turns SQLite's errors into ours."""
        try:
            yield
        except sqlite3.Error as error:
            raise self.translate(error) from error

    def translate(self, error: sqlite3.Error) -> BackendError:
        """Our error for one of SQLite's, with what to do about it."""
        failure = self._translation(error)
        failure.__cause__ = error
        return failure

    def _translation(self, error: sqlite3.Error) -> BackendError:
        home, text = str(self.path), str(error)
        name = error.sqlite_errorname if error.sqlite_errorcode is not None else ""
        if name.startswith("SQLITE_FULL"):
            return HomeError(home, "has no space left", "free some; what was acknowledged is safe")
        if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
            return HomeError(
                home, f"cannot be written: {text}", "make it writable, or set HEADWATER_HOME"
            )
        if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            return HomeError(
                home,
                f"is damaged: {text}",
                "stop all processes, keep a copy of the folder, and restore it from a backup or "
                "with `sqlite3 headwater.db .recover`",
            )
        return HomeError(home, f"failed: {text}", "see the cause above; nothing was written")

    def translate_os(self, error: OSError) -> BackendError:
        """Our error for one of the file system's."""
        failure = HomeError(
            str(self.path),
            f"cannot be used: {error.strerror}",
            "make it a writable folder with free space, or set HEADWATER_HOME to one",
        )
        failure.__cause__ = error
        return failure

    def close(self) -> None:
        self._closed = True
        for connection in self._connections:
            connection.close()
        self._connections.clear()
