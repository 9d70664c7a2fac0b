"""The files of a lake, in a folder or in S3-compatible storage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from pyarrow import fs

from headwater.backends.duckdb.segments import (
    ALL_BUCKETS,
    SegmentFolder,
    SegmentLog,
    fsync,
)
from headwater.backends.lake.history import LakeHistory
from headwater.backends.lake.tables import OWN_NAME, field_ids
from headwater.core.duckdb_session import Session
from headwater.core.object_storage import ObjectStorage
from headwater.core.sql_literals import text
from headwater.ports import Segment

# In place of unsigned types, which Iceberg has not.
_ROWS = {
    "history": "SELECT * REPLACE (CAST(bucket AS INTEGER) AS bucket) FROM ({rows})",
    "events": (
        "SELECT * REPLACE (CAST(bucket AS INTEGER) AS bucket,"
        ' CAST("partition" AS INTEGER) AS "partition") FROM ({rows})'
    ),
}


class LakeFolder(SegmentFolder):
    """Parquet files below the address of a lake; a commit makes them part of its tables."""

    def __init__(self, url: str, history: LakeHistory, storage: ObjectStorage | None) -> None:
        super().__init__(Path(url))
        self.location = url
        self.storage = storage
        self._history = history
        if storage is None:
            self._files, self._root = fs.LocalFileSystem(), url
        else:
            self._files, self._root = _bucket(storage), url.removeprefix("s3://")

    def prepare(self, session: Session) -> None:
        if self.storage is not None:
            self.storage.open(session)

    def files(self, segments: Iterable[Segment], *, is_whole: bool = False) -> list[str]:
        return [f"{self.location}/{segment.name}" for segment in segments]

    def gone(self, files: Iterable[str], error: Exception) -> list[str]:
        if self.storage is None:
            return super().gone(files, error)
        return self.storage.gone(files, error)

    def damage(self, segments: Iterable[Segment]) -> list[str]:
        """Return nothing: the tables have no checksums."""
        return []

    @contextmanager
    def lock(self, *, wait: bool) -> Iterator[bool]:
        with self._history.lock(wait=wait) as held:
            yield held

    def write(
        self, session: Session, log: SegmentLog, rows: str, buckets: tuple[int, int] = ALL_BUCKETS
    ) -> Segment:
        name = f"{log.kind}/data/{self.new_name(log, buckets)}"
        file = f"{self.location}/{name}"
        if self.storage is None:
            Path(file).parent.mkdir(parents=True, exist_ok=True)
        written = session.run(
            f"COPY ({_ROWS[log.kind].format(rows=rows)} ORDER BY {log.order}) TO {text(file)}"
            " (FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false, RETURN_STATS,"
            f" FIELD_IDS {field_ids(log.kind)})"
        ).fetchall()[0]
        if self.storage is None:
            fsync(Path(file))
            fsync(Path(file).parent)
        entry = self._history.tables[log.kind].data_file(name, written)
        self._history.written[name] = entry
        return Segment(name, log.kind, entry.record_count, buckets)

    def remove(self, names: Iterable[str]) -> None:
        self.delete(f"{self.location}/{name}" for name in names)

    def delete(self, files: Iterable[str]) -> None:
        """Delete files of the lake that still exist."""
        for file in files:
            try:
                self._files.delete_file(self._root + file.removeprefix(self.location))
            except FileNotFoundError:
                continue

    def others(self, known: Iterable[str]) -> set[str]:
        """Return nothing: a lake may have files of other writers."""
        return set()

    def unreferenced(self, known: set[str], before: datetime | None) -> list[str]:
        """Return our data files that no snapshot has, those from before a moment or all."""
        selector = fs.FileSelector(self._root, recursive=True, allow_not_found=True)
        return [
            file
            for found in self._files.get_file_info(selector)
            if (file := self.location + found.path.removeprefix(self._root)) not in known
            and OWN_NAME.search(file)
            and (before is None or found.mtime < before)
        ]


def _bucket(storage: ObjectStorage) -> fs.FileSystem:
    address = storage.endpoint
    return fs.S3FileSystem(
        access_key=storage.access_key or None,
        secret_key=storage.secret_key or None,
        region=storage.region or "us-east-1",
        scheme="http" if address.startswith("http://") else "https",
        endpoint_override=address.partition("://")[2] or None,
        force_virtual_addressing=False,
    )
