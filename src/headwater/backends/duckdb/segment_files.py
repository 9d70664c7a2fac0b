"""The folder of segments: locking, writing, removing and choosing files to merge."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from headwater.backends.duckdb.segment_schema import SegmentLog
from headwater.core.duckdb_session import Session, scalar, text
from headwater.core.values import new_id
from headwater.ports import Segment

MERGE_COUNT = 8
_MAX_TIER = 3
_SUFFIX = ".parquet"
_UNFINISHED = ".unfinished"


class SegmentFolder:
    """Parquet files, which are complete and durable when they get their final name."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def lock(self, *, wait: bool) -> Iterator[bool]:
        """Hold the lock for adding and removing files; yield whether it was acquired."""
        handle = os.open(self.path / "writer.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            yield _acquire(handle, wait=wait)
        finally:
            os.close(handle)

    def write(self, session: Session, log: SegmentLog, rows: str) -> Segment:
        """Write the rows of a query as a new segment."""
        name = f"{log.kind}-0000-1023-{new_id()}{_SUFFIX}"
        count = write_parquet(session, f"{rows} ORDER BY {log.order}", self.path / name)
        return Segment(name, log.kind, count)

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            (self.path / name).unlink(missing_ok=True)

    def remove_all_but(self, known: Iterable[str]) -> None:
        """Remove the files of a writer that died before its segment was in the manifest."""
        files = {file.name for file in self.path.iterdir()}
        written = {name for name in files if name.endswith((_SUFFIX, _UNFINISHED))}
        self.remove(written.difference(known))


def write_parquet(session: Session, rows: str, file: Path) -> int:
    """Write the rows of a query to a file, which is durable when it exists; return their number."""
    unfinished = file.with_name(file.name + _UNFINISHED)
    count: int = scalar(
        session.run(
            f"COPY ({rows}) TO {text(unfinished)}"
            " (FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false)"
        )
    )
    _fsync(unfinished)
    unfinished.rename(file)
    _fsync(file.parent)
    return count


def _acquire(handle: int, *, wait: bool) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def due_for_merge(segments: Sequence[Segment], segment_rows: int) -> list[Segment]:
    """Return the segments of the lowest tier that has enough of them to merge, or none.

    The segments of a tier are eight times as large as those of the tier below, so a row is
    rewritten once per tier, and not again in the top tier.
    """
    for tier in range(_MAX_TIER):
        same_tier = [segment for segment in segments if _tier(segment, segment_rows) == tier]
        if len(same_tier) >= MERGE_COUNT:
            return same_tier
    return []


def _tier(segment: Segment, segment_rows: int) -> int:
    tier, bound = 0, segment_rows * MERGE_COUNT
    while segment.rows >= bound:
        tier, bound = tier + 1, bound * MERGE_COUNT
    return tier
