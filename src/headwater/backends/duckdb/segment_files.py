"""The folder of segments: who may change it, how a file gets into it, and which may go."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from headwater.backends.duckdb.engine import Session, scalar, text
from headwater.backends.duckdb.segment_schema import SegmentLog
from headwater.core.values import new_id
from headwater.ports import Segment

MERGED_AT_ONCE = 8
_LARGEST_TIER = 3
_SUFFIX = ".parquet"
_UNFINISHED = ".unfinished"


class SegmentFolder:
    """Parquet files that are complete and durable from the moment they have their name."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def lock(self, *, wait: bool) -> Iterator[bool]:
        """Holds the right to add and remove files; says whether it was got."""
        handle = os.open(self.path / "roller.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            yield _take(handle, wait=wait)
        finally:
            os.close(handle)

    def write(self, session: Session, log: SegmentLog, rows: str) -> Segment:
        """Writes the rows of a query as a new segment."""
        name = f"{log.kind}-{new_id()}{_SUFFIX}"
        unfinished = self.path / (name + _UNFINISHED)
        count = scalar(
            session.run(
                f"COPY ({rows} ORDER BY {log.order}) TO {text(unfinished)}"
                " (FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false)"
            )
        )
        _flush(unfinished)
        unfinished.rename(self.path / name)
        _flush(self.path)
        return Segment(name, log.kind, count)

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            (self.path / name).unlink(missing_ok=True)

    def remove_all_but(self, known: Iterable[str]) -> None:
        """Removes what a roller left that died before its segment was in the manifest."""
        files = {file.name for file in self.path.iterdir()}
        written = {name for name in files if name.endswith((_SUFFIX, _UNFINISHED))}
        self.remove(written.difference(known))


def _take(handle: int, *, wait: bool) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def due_for_merge(segments: Sequence[Segment], segment_rows: int) -> list[Segment]:
    """The segments of the lowest tier that holds enough of them to be merged, or none.

    A tier's segments are eight times as large as those of the tier below, so a row is rewritten
    once for each tier it climbs and never again at the top.
    """
    for tier in range(_LARGEST_TIER):
        alike = [segment for segment in segments if _tier(segment, segment_rows) == tier]
        if len(alike) >= MERGED_AT_ONCE:
            return alike
    return []


def _tier(segment: Segment, segment_rows: int) -> int:
    tier, bound = 0, segment_rows * MERGED_AT_ONCE
    while segment.rows >= bound:
        tier, bound = tier + 1, bound * MERGED_AT_ONCE
    return tier
