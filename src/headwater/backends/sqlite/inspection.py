"""What `headwater doctor` finds in an embedded home."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from headwater.backends.segment_files import damage_in
from headwater.backends.sqlite.history_tail import read_manifest
from headwater.backends.sqlite.home import (
    CHECKPOINT_BYTES,
    LOST_DATABASE,
    SCHEMA_VERSION,
    remains_of,
)
from headwater.model.health import Finding, Findings
from headwater.settings.schema import Settings

_MEBIBYTE = 1 << 20
_GIBIBYTE = 1 << 30
_LOW_BYTES = 2 * _GIBIBYTE
_TOO_LOW_BYTES = 200 * _MEBIBYTE
_LARGE_WAL = 8 * CHECKPOINT_BYTES
_SHOWN = 5
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs")


def inspect(settings: Settings) -> list[Finding]:
    """Examine the home that the settings name; nothing is created."""
    home = Path(settings.home).absolute()
    findings = Findings("embedded store", str(home))
    findings.ok("SQLite", f"version {sqlite3.sqlite_version}", "the sqlite3 module of Python")
    if not home.exists():
        findings.unknown(
            "home",
            "the folder does not exist yet",
            "`headwater serve FILE` creates it; if there is a store elsewhere, set HEADWATER_HOME",
        )
        return findings.all
    try:
        _inspect_folder(home, findings)
        _inspect_database(home, findings)
    except (OSError, sqlite3.Error) as error:
        findings.error("home", f"cannot be read: {error}", "run as the user who owns the folder")
    return findings.all


def _inspect_folder(home: Path, findings: Findings) -> None:
    mode = home.stat().st_mode & 0o777
    if mode & 0o077:
        findings.warning(
            "rights",
            f"other users may open the folder (mode {mode:o})",
            f"chmod 700 {home}",
        )
    else:
        findings.ok("rights", f"only its owner may open the folder (mode {mode:o})")
    if not os.access(home, os.W_OK):
        findings.error("writes", "this user cannot write to the folder", "change its owner")
    disk = shutil.disk_usage(home)
    shown = f"{disk.free / _GIBIBYTE:,.1f} GiB of {disk.total / _GIBIBYTE:,.1f} GiB free"
    remedy = "free some space, or remove old history with `headwater prune`"
    if disk.free < _TOO_LOW_BYTES:
        findings.error("disk", shown, remedy)
    elif disk.free < _LOW_BYTES:
        findings.warning("disk", shown, remedy)
    else:
        findings.ok("disk", shown)
    system = _file_system(home)
    if system in _NETWORK:
        findings.error(
            "file system",
            f"the folder is on {system}, where locks and fsync are not reliable",
            "put the home on a local disk, or use Redis and Postgres",
        )


def _inspect_segments(folder: Path, connection: sqlite3.Connection, findings: Findings) -> None:
    # Listed before the manifest is read: a segment is in the manifest before it has a file.
    files = {file.name for file in folder.glob("*.parquet")}
    manifest = read_manifest(connection)
    live = [segment for segment in manifest if segment.retired_at is None]
    if damage := damage_in(folder, live, is_whole=False):
        findings.error(
            "segments",
            f"{len(damage)} of {len(live)} files are not the ones that were written: "
            f"{', '.join(damage[:_SHOWN])}",
            "stop all processes and restore these files from a backup of the same folder",
        )
    else:
        findings.ok("segments", f"{len(live)} files have their size and their end as written")
    if strays := sorted(files.difference(segment.name for segment in manifest)):
        findings.warning(
            "other segments",
            f"{len(strays)} files were not written by this database, such as {strays[0]}; they "
            "are neither read nor removed",
            "if an older or another database was put into this folder, restore the right one; "
            "otherwise move these files away",
        )


def _file_system(path: Path) -> str:
    """Return the type of the file system of a folder, or an empty text if it is unknown."""
    try:
        lines = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return ""
    mounts = [(fields[1], fields[2]) for line in lines if len(fields := line.split()) > 2]
    within = [(place, kind) for place, kind in mounts if path.is_relative_to(place)]
    return max(within, key=lambda mount: len(mount[0]), default=("", ""))[1]


def _inspect_database(home: Path, findings: Findings) -> None:
    database = home / "headwater.db"
    if not database.exists():
        remains = len(remains_of(home))
        findings.error(
            "database",
            f"the folder has no headwater.db, and {remains} files of history and vectors",
            LOST_DATABASE,
        )
        return
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
        if version == SCHEMA_VERSION:
            _inspect_segments(home / "segments", connection, findings)
    if version > SCHEMA_VERSION:
        findings.error(
            "migrations",
            f"tables of version {version}; this Headwater uses {SCHEMA_VERSION}",
            "upgrade headwater, or set HEADWATER_HOME to another folder",
        )
    elif version < SCHEMA_VERSION:
        findings.warning(
            "migrations",
            f"tables of version {version}; the next start makes them {SCHEMA_VERSION}",
            "stop the processes of the earlier version and back up the folder before you start",
        )
    else:
        findings.ok("migrations", f"tables of version {version}")
    findings.ok("fsync", f"journal mode {journal}, and every commit is synchronised (FULL)")
    log = database.with_name(database.name + "-wal")
    size = log.stat().st_size if log.exists() else 0
    if size > _LARGE_WAL:
        findings.warning(
            "write-ahead log",
            f"{size / _MEBIBYTE:,.0f} MiB: a reader has held its transaction for long",
            "end the process that reads the store for long",
        )
