"""Copy an embedded home while it is used, and make a home of a copy.

A backup is the database at one moment and the segments that it names. All else in a home is made
again from these: vector blocks, sockets, and files of work in progress.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path

import msgspec

from headwater.backends.segment_files import damage_in, damaged_error
from headwater.backends.sqlite.history_tail import is_in_lake, read_manifest
from headwater.backends.sqlite.home import SCHEMA_VERSION, Home
from headwater.errors import ConfigError, HomeError, InvalidInputError
from headwater.model.admin import BackupReport
from headwater.ports import Segment

_DATABASE = "headwater.db"
_MANIFEST = "backup.json"
# A file is removed so long after its segment was replaced that the second attempt finds all.
_ATTEMPTS = 3


HAS_LAKE = (
    "a home whose history is in a lake cannot be backed up by itself: its database and the lake's "
    "tables have to be of one moment; stop its processes, copy the home, the catalog and the "
    "lake's files, and start them again"
)


class _Manifest(msgspec.Struct, frozen=True):
    """What was copied, when, and the bytes of the database; it has the checksums of segments."""

    created_at: datetime
    schema_version: int
    database_size: int
    database_sha256: str


def back_up(home: Home, folder: Path, now: datetime) -> BackupReport:
    """Copy a home into a new folder, which appears when the copy is whole and verified."""
    folder = folder.absolute()
    if folder.exists():
        raise InvalidInputError(f"{folder} exists; name a folder that does not")
    with home.translated(), _appearing(folder) as partial:
        for attempt in range(1, _ATTEMPTS + 1):
            segments = _copy_database(home, partial / _DATABASE)
            try:
                _copy_segments(home.segments, partial / "segments", segments)
                break
            except FileNotFoundError:
                if attempt == _ATTEMPTS:
                    raise
        _remove_others(partial / "segments", segments)
        database = partial / _DATABASE
        manifest = _Manifest(now, SCHEMA_VERSION, database.stat().st_size, _digest_of(database))
        _write(partial / _MANIFEST, msgspec.json.encode(manifest))
        return _verified(partial, folder)


def restore(folder: Path, home: Path) -> BackupReport:
    """Make a home of a backup; a home with files is left alone."""
    manifest = _manifest_of(folder)
    if manifest.schema_version > SCHEMA_VERSION:
        raise HomeError(
            str(folder),
            f"is of a newer Headwater (schema {manifest.schema_version}; this one uses "
            f"{SCHEMA_VERSION})",
            "upgrade headwater; nothing was changed",
        )
    _verified(folder, folder)
    try:
        return _restored(folder, home)
    except OSError as error:
        raise HomeError(
            str(home), f"cannot be made: {error}", "name a folder that can be written"
        ) from error


def _restored(folder: Path, home: Path) -> BackupReport:
    """Fill a home, which may be an empty volume; its database is the last to appear."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(path.name != "lost+found" for path in home.iterdir()):  # of a new ext4 volume
        raise HomeError(
            str(home),
            "is not empty",
            "stop its processes and move it away, or set HEADWATER_HOME; nothing was changed",
        )
    with _removed_after_failure(home / "segments"), _removed_after_failure(home / "restoring"):
        partial = home / "restoring"
        for path in (partial, partial / "segments"):
            path.mkdir(mode=0o700)
        for file in (folder / _DATABASE, *sorted((folder / "segments").iterdir())):
            _copy_file(file, partial / file.relative_to(folder))
        shutil.copyfile(folder / _MANIFEST, partial / _MANIFEST)
        report = _verified(partial, home)
        _sync(partial / "segments")
        for name in ("segments", _DATABASE):
            (partial / name).rename(home / name)
    # Complete, so an error from here on takes nothing back.
    shutil.rmtree(partial)
    _sync(home)
    return report


@contextmanager
def _removed_after_failure(folder: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


@contextmanager
def _appearing(folder: Path) -> Iterator[Path]:
    """Yield a folder beside another, which becomes that one in one step when all is written."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
    partial.mkdir(mode=0o700)
    try:
        yield partial
        partial.rename(folder)
        _sync(folder.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _copy_database(home: Home, copy: Path) -> Sequence[Segment]:
    """Copy the database at one moment; return the segments that it names."""
    copy.unlink(missing_ok=True)
    copy.touch(mode=0o600)
    with closing(home.connect()) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
        # One file, without a write-ahead log beside it.
        target.execute("PRAGMA journal_mode = DELETE")
        with target:
            target.execute("DELETE FROM segments WHERE retired_at IS NOT NULL")
        if is_in_lake(target):  # whatever this process was told
            raise ConfigError(HAS_LAKE)
        segments = read_manifest(target)
    _sync(copy)
    return segments


def _copy_segments(source: Path, target: Path, segments: Sequence[Segment]) -> None:
    """Copy the files that an earlier attempt has not copied; their names are never used again."""
    target.mkdir(mode=0o700, exist_ok=True)
    for segment in segments:
        if not (target / segment.name).exists():
            _copy_file(source / segment.name, target / segment.name)
    _sync(target)


def _copy_file(source: Path, target: Path) -> None:
    with source.open("rb") as content:
        target.touch(mode=0o600)
        with target.open("wb") as copy:
            shutil.copyfileobj(content, copy, 1 << 20)
            copy.flush()
            os.fsync(copy.fileno())


def _remove_others(folder: Path, segments: Sequence[Segment]) -> None:
    names = {segment.name for segment in segments}
    for file in folder.iterdir():
        if file.name not in names:
            file.unlink()


def _verified(folder: Path, shown: Path) -> BackupReport:
    """Compare every byte of a backup with what was written; return what it has."""
    manifest, database = _manifest_of(folder), folder / _DATABASE
    damage = []
    if not database.exists():
        damage.append(f"{_DATABASE} is missing")
    elif _digest_of(database) != manifest.database_sha256:
        damage.append(f"{_DATABASE} has other bytes than were written")
    if damage:
        raise damaged_error(shown, damage)
    # Immutable: SQLite must not make files beside it, which could be on a read-only disk.
    address = f"{database.absolute().as_uri()}?immutable=1"
    with closing(sqlite3.connect(address, uri=True)) as connection:
        (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            raise damaged_error(shown, [f"{_DATABASE}: {found}"])
        segments = read_manifest(connection)
    if damage := damage_in(folder / "segments", segments, is_whole=True):
        raise damaged_error(shown, damage)
    sizes = [(folder / "segments" / segment.name).stat().st_size for segment in segments]
    return BackupReport(
        folder=str(shown),
        created_at=manifest.created_at,
        files=1 + len(sizes),
        bytes=manifest.database_size + sum(sizes),
    )


def _manifest_of(folder: Path) -> _Manifest:
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode((folder / _MANIFEST).read_bytes(), type=_Manifest)
    raise InvalidInputError(
        f"{folder} is no backup: it has no readable {_MANIFEST}; name a folder that "
        "`headwater backup` made"
    )


def _digest_of(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _write(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    file.chmod(0o600)
    _sync(file)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
