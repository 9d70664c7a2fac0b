"""The embedded store's folder: create it private, open it safely, translate SQLite's errors."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import sqlite3
import stat
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from headwater.backends.sqlite.migration import migrate
from headwater.core.logging import log
from headwater.errors import (
    BackendError,
    BackendUnavailableError,
    ClosedError,
    ConfigError,
    HomeError,
    StoreLostError,
)

SCHEMA_VERSION = 18
"""The version of schema.sql; raise it with every change of the tables."""

CHECKPOINT_BYTES = 8 << 20
BUSY_SECONDS = 30.0
COUNT_BYTES = 8

LOST_DATABASE = (
    "restore the whole folder from a backup; to start anew without these files, move the folder "
    "away, or set HEADWATER_HOME to another one"
)
"""The remedy for a home whose database is gone."""

_OTHERS = stat.S_IRWXG | stat.S_IRWXO

SCHEMA = files(__package__).joinpath("schema.sql").read_text()
"""The statements that create the tables."""

# Problem and remedy by the beginning of SQLite's error name; the first match applies.
_PROBLEMS = (
    (("SQLITE_FULL",), "has no space left", "free some space; acknowledged writes are safe"),
    (
        ("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM"),
        "cannot be written: {}",
        "make it writable, or set HEADWATER_HOME",
    ),
    (
        ("SQLITE_CORRUPT", "SQLITE_NOTADB"),
        "is damaged: {}",
        "stop all processes, keep a copy of the folder, and restore it from a backup or "
        "with `sqlite3 headwater.db .recover`",
    ),
    (("",), "failed: {}", "see the cause above; nothing was written"),
)


def _mode_of(path: Path) -> int:
    """Return the rights of a file or a folder; none if it does not exist."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return 0


def _size_of(path: Path) -> int:
    """Return the size of a file; 0 if it does not exist."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def remains_of(home: Path) -> list[str]:
    """Return the files of a home that only its database can have named, the first ones first."""
    files = [*home.glob("segments/*.parquet"), *home.glob("vectors/*.vectors")]
    return sorted(str(file.relative_to(home)) for file in files)


def _try_to_set_mode(path: Path, mode: int) -> None:
    try:
        path.chmod(mode)
    except FileNotFoundError:
        return  # the last process that used the database has closed it and removed the WAL
    except PermissionError:
        # It belongs to another user, whose process does it.
        _warn_about(path)


def _warn_about(path: Path) -> None:
    log.warning("home can be read by other users", path=str(path), remedy=f"chmod go= {path}")


def _file_id(file: str) -> tuple[int, int] | None:
    """Return the device and the inode of a file, or None if it does not exist."""
    try:
        status = os.stat(file)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _has_free_descriptor() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return False
    return True


class WriteLock:
    """Held around every write transaction and checkpoint, by one process at a time.

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
    """A folder with the database, its lock, the sockets of its processes, and segments."""

    def __init__(self, path: Path, partitions: int) -> None:
        self.path = path
        self.partitions = partitions
        self.database = path / "headwater.db"
        self._database = str(self.database)  # every write stats it, and a Path costs more
        self.segments = path / "segments"
        self.workers = path / "workers"
        self.waiting = path / "waiting"
        self.scratch = path / "scratch"
        self.vectors = path / "vectors"
        self._lock_file = path / "write.lock"
        self._pid = os.getpid()
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._closed = False
        self._opened: tuple[int, int] | None = None

    def open(self) -> None:
        """Create the folder and the tables if needed; refuse tables of another version.

        No database is created beside the files of one that is gone.
        """
        try:
            if not _size_of(self.database):
                self._check_not_lost()
            folders = (self.segments, self.workers, self.waiting, self.scratch, self.vectors)
            for folder in (self.path, *folders):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for file in (self._lock_file, self.database):  # the WAL gets the database's mode
                file.touch(mode=0o600)
            self._make_private(folders)
        except OSError as error:
            raise self.translate_os(error) from error
        with (
            self.translated(),
            closing(self.write_lock()) as lock,
            lock,
            closing(self.connect()) as connection,
        ):
            self._ensure_schema(connection)
            self._check_partitions(connection)
        self._opened = _file_id(self._database)

    def _check_not_lost(self) -> None:
        log = self.database.with_name(f"{self.database.name}-wal")
        remains = [*([log.name] if _size_of(log) else ()), *remains_of(self.path)]
        # Looked at again: another process may have created it, and then these files.
        if remains and not _size_of(self.database):
            raise self._lost_database(remains)

    def _lost_database(self, remains: Sequence[str]) -> HomeError:
        return HomeError(
            str(self.path),
            f"has no tables in {self.database.name}, but {len(remains)} files of a store, such as "
            f"{remains[0]}",
            f"{LOST_DATABASE}; nothing was changed",
        )

    def _make_private(self, folders: Sequence[Path]) -> None:
        """Take the rights of other users from files and folders that existed with wider ones."""
        beside = [self.database.with_name(f"{self.database.name}{end}") for end in ("-wal", "-shm")]
        for path in (*folders, self._lock_file, self.database, *beside):
            mode = _mode_of(path)
            if mode & _OTHERS:
                _try_to_set_mode(path, mode & ~_OTHERS)
        if _mode_of(self.path) & _OTHERS:
            _warn_about(self.path)

    def _ensure_schema(self, connection: sqlite3.Connection) -> None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise HomeError(
                str(self.path),
                f"was made by a newer Headwater (schema {version}; this one uses {SCHEMA_VERSION})",
                "upgrade headwater, or set HEADWATER_HOME to another folder; nothing was changed",
            )
        if version == 0 and (remains := remains_of(self.path)):
            raise self._lost_database(remains)
        connection.execute("PRAGMA journal_mode = WAL")
        if version == 0:
            connection.executescript(
                f"BEGIN IMMEDIATE;\n{SCHEMA}"
                f"INSERT INTO meta VALUES ('partitions', '{self.partitions}');\n"
                f"PRAGMA user_version = {SCHEMA_VERSION};\nCOMMIT;"
            )
        elif version < SCHEMA_VERSION:
            migrate(connection, self.path, SCHEMA, SCHEMA_VERSION)
            log.info("home migrated", path=str(self.path), was=version, version=SCHEMA_VERSION)

    def _check_partitions(self, connection: sqlite3.Connection) -> None:
        (count,) = connection.execute("SELECT value FROM meta WHERE key = 'partitions'").fetchone()
        if int(count) != self.partitions:
            raise ConfigError(
                f"the store in {self.path} was created with {count} partitions, but the settings "
                f"say {self.partitions}; the number cannot change later: set "
                f"HEADWATER_PARTITIONS={count}, or use another HEADWATER_HOME"
            )

    def connect(self) -> sqlite3.Connection:
        """Return a new connection with the common settings."""
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
        # A restarted WAL is truncated to this size, so a larger one needs a checkpoint.
        connection.execute(f"PRAGMA journal_size_limit = {CHECKPOINT_BYTES}")
        connection.execute("PRAGMA synchronous = FULL")
        # The default depends on how SQLite was built; what must not stay is erased explicitly.
        connection.execute("PRAGMA secure_delete = OFF")
        connection.execute("PRAGMA cache_size = -65536")
        # SQLite unmaps a mapped database after every commit of another connection, and looks each
        # page up in the WAL also without one: its own cache is faster.
        connection.execute("PRAGMA mmap_size = 0")
        return connection

    def check_not_replaced(self) -> None:
        """Raise StoreLostError if the database was deleted or replaced while it was open."""
        if _file_id(self._database) != self._opened:
            raise StoreLostError(
                "SQLite",
                "the database of the embedded store was deleted or replaced while it was open, so "
                "reads and writes are refused; restore the folder if it was deleted by mistake, "
                "and restart this process",
            )

    def check_open(self) -> None:
        """Raise ClosedError after close, and in a forked child: connections do not survive."""
        if self._pid != os.getpid():
            raise ClosedError(
                "this store was opened before a fork and cannot be used in the child process; "
                "create a FeatureStore there"
            )
        if self._closed:
            raise ClosedError("this store is closed")

    @property
    def reader(self) -> sqlite3.Connection:
        """This thread's read connection; reading inline is faster than using another thread."""
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
        """Return the rows of a query."""
        try:
            return self.reader.execute(sql, arguments).fetchall()
        except sqlite3.Error as error:
            raise self.translate(error) from error

    def write_lock(self) -> WriteLock:
        """Return a handle on the lock shared by the writers of all processes."""
        return WriteLock(self._lock_file)

    def shared_count(self) -> mmap.mmap:
        """Return a counter in the lock file, which one process changes and all others see."""
        handle = os.open(self._lock_file, os.O_RDWR)
        try:
            os.ftruncate(handle, COUNT_BYTES)
            return mmap.mmap(handle, COUNT_BYTES)
        finally:
            os.close(handle)

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Raise BackendError in place of errors of SQLite and of the file system."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise self.translate(error) from error

    def translate(self, error: sqlite3.Error | OSError) -> BackendError:
        """Return the BackendError for an error of SQLite or of the file system, with a remedy."""
        if isinstance(error, OSError):
            return self.translate_os(error)
        # Only errors raised by SQLite itself, not by the Python module, have a name.
        name = vars(error).get("sqlite_errorname", "")
        if name.startswith("SQLITE_CANTOPEN") and not _has_free_descriptor():
            return self._no_descriptor(error)
        problem, remedy = next((p, r) for names, p, r in _PROBLEMS if name.startswith(names))
        return self._failure(problem.format(error), remedy, error)

    def translate_os(self, error: OSError) -> BackendError:
        """Return the BackendError for an error of the file system."""
        if error.errno in (errno.EMFILE, errno.ENFILE):
            return self._no_descriptor(error)
        remedy = "make it a writable folder with free space, or set HEADWATER_HOME to one"
        return self._failure(f"cannot be used: {error.strerror}", remedy, error)

    def _no_descriptor(self, cause: Exception) -> BackendError:
        """Return the error of a process that may not open another file for now."""
        failure = BackendUnavailableError(
            f"the store in {self.path} cannot be used: this process has too many open files; close "
            "connections, or raise the limit with `ulimit -n` or LimitNOFILE="
        )
        failure.__cause__ = cause
        return failure

    def _failure(self, problem: str, remedy: str, cause: Exception) -> BackendError:
        failure = HomeError(str(self.path), problem, remedy)
        failure.__cause__ = cause
        return failure

    def close(self) -> None:
        self._closed = True
        for connection in self._connections:
            connection.close()
        self._connections.clear()
