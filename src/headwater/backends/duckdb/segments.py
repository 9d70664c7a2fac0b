"""Segments of history and events: their columns, their files, and which of them to merge.

A value is stored in the column of its kind. A value that does not fit its column is stored as JSON,
so nothing is lost; a JSON null leaves all columns empty. A time with an offset is stored as both,
and so is -0.0, whose sign a column of floats may lose.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import asdict

from headwater.backends.segment_files import checksum_of, damage_in, damage_of, damaged_error
from headwater.core.clock import to_micros
from headwater.core.duckdb_session import Session, column_types, parquet, scalar
from headwater.core.file_locks import locked
from headwater.core.object_storage import ObjectStorage
from headwater.core.partitioning import BUCKETS
from headwater.core.sql_literals import text
from headwater.model.values import new_id
from headwater.ports import LogKind, NamedSpan, RecentHistory, Segment, Snapshot
from headwater.ports.history import VALUE_AS_JSON, VALUE_COLUMNS, VALUE_FLOAT


class SegmentLog(NamedTuple):
    """One kind of segment: the columns of recent rows, their typed form, and their order."""

    kind: LogKind
    columns: Mapping[str, str]
    typed: str
    order: str
    has_grown: bool = False
    """Whether segments of earlier versions lack columns."""


HISTORY = SegmentLog(
    kind="history",
    columns=column_types(
        "seq BIGINT, feature VARCHAR, entity VARCHAR, entity_id VARCHAR, "
        "bucket USMALLINT, kind VARCHAR, value VARCHAR, as_of BIGINT, "
        "written_at BIGINT, cause VARCHAR"
    ),
    typed=f"""
SELECT seq, feature, entity, entity_id, bucket, kind,
       make_timestamptz(as_of) AS as_of,
       make_timestamptz(written_at) AS written_at,
       cause,
       {VALUE_COLUMNS}
FROM """,
    order="feature, bucket, entity_id, as_of, seq",
)

EVENTS = SegmentLog(
    kind="events",
    columns=column_types(
        "seq BIGINT, event_id VARCHAR, event_type VARCHAR, entity_id VARCHAR, "
        "bucket USMALLINT, partition USMALLINT, timestamp BIGINT, received_at BIGINT, "
        "payload VARCHAR, traceparent VARCHAR"
    ),
    typed="""
SELECT seq, event_id, event_type, entity_id, bucket, "partition",
       make_timestamptz("timestamp") AS "timestamp",
       make_timestamptz(received_at) AS received_at,
       payload, traceparent
FROM """,
    order="seq",
    has_grown=True,
)

LOGS: Mapping[LogKind, SegmentLog] = {log.kind: log for log in (HISTORY, EVENTS)}


VIEWS: Mapping[str, tuple[LogKind, str]] = {
    "events": (
        "events",
        """
CREATE VIEW events AS
SELECT event_id, event_type, entity_id, "timestamp", received_at, CAST(payload AS JSON) AS payload,
       traceparent
FROM headwater.events
WHERE NOT starts_with(event_type, 'headwater.')""",
    ),
    "feature_history": (
        "history",
        f"""
CREATE VIEW feature_history AS
SELECT feature, entity, entity_id, as_of, written_at, cause, kind,
       CAST({VALUE_AS_JSON} AS JSON) AS value,
       value_int, {VALUE_FLOAT} AS value_float, value_bool, value_text, value_time,
       CASE WHEN value_time IS NULL AND value_float IS NULL THEN value_json END AS value_json
FROM headwater.history""",
    ),
}
"""The built-in views of queries, each with its log and its definition."""


NAME_COLUMNS = column_types(
    "feature VARCHAR, entity VARCHAR, version BIGINT, series VARCHAR, "
    "default_value VARCHAR, since BIGINT, until BIGINT"
)
NAMES_VIEW = """
CREATE VIEW feature_names AS
SELECT feature, entity, version, series, default_value, make_timestamptz(since) AS since,
       make_timestamptz(until) AS until
FROM headwater.names"""


def name_row(span: NamedSpan) -> dict[str, str | int | None]:
    """Return a row of the table behind ``feature_names``."""
    until = None if span.until is None else to_micros(span.until)
    return {**asdict(span), "since": to_micros(span.since), "until": until}


def open_log(
    session: Session,
    log: SegmentLog,
    snapshot: Snapshot,
    folder: SegmentFolder,
    *,
    is_whole: bool = False,
) -> None:
    """Create a view of segments and tail, ``headwater.history`` or ``headwater.events``."""
    folder.prepare(session)
    files = folder.files(snapshot.segments, is_whole=is_whole)
    open_rows(session, log, files, snapshot.tail, longest=snapshot.longest)


def open_recent(
    session: Session,
    log: SegmentLog,
    tail: RecentHistory,
    folder: SegmentFolder,
    *,
    features: Sequence[str] = (),
    entity_ids: Sequence[str] = (),
) -> None:
    """Create the same view of this moment; of the tail, it may have some features and ids only."""
    snapshots = tail.snapshot(session.folder, [log.kind], features=features, entity_ids=entity_ids)
    open_log(session, log, snapshots[log.kind], folder)


def open_rows(
    session: Session, log: SegmentLog, files: Sequence[str], tail: Path | None, *, longest: int
) -> None:
    """Create the same view of some files and, if there is one, a tail."""
    name = f"headwater.{log.kind}_tail"
    session.run("CREATE SCHEMA IF NOT EXISTS headwater")
    session.load(name, tail, log.columns, longest=longest)
    rows = log.typed + name
    if files:
        session.segments += files
        # Even an empty tail has the columns that its files may lack.
        more = f" UNION ALL BY NAME {rows}" if log.has_grown or tail is not None else ""
        rows = parquet(files, by_name=log.has_grown) + more
    session.run(f"CREATE VIEW headwater.{log.kind} AS {rows}")


ALL_BUCKETS = (0, BUCKETS - 1)
MERGE_COUNT = 8
_MAX_TIER = 3
_SUFFIX = ".parquet"
_UNFINISHED = ".unfinished"


class SegmentFolder:
    """Parquet files, which are complete and durable when they get their final name.

    ``announce`` is called with each new segment before its file is written.
    """

    def __init__(self, path: Path, announce: Callable[[Segment], None] = lambda _: None) -> None:
        self.path = path
        self.location = str(path)
        self.storage: ObjectStorage | None = None
        self._announce = announce
        self._checked: dict[str, tuple[int, ...]] = {}

    def prepare(self, session: Session) -> None:
        """Let a session reach the files."""

    def files(self, segments: Iterable[Segment], *, is_whole: bool = False) -> list[str]:
        """Return the files of segments; raise HomeError if one is not the file that was written.

        The end of a file is read when this process sees the file for the first time, all of it only
        with ``is_whole``. Opening a missing file is left to its reader.
        """
        return [self._file(segment, is_whole=is_whole) for segment in segments]

    def _file(self, segment: Segment, *, is_whole: bool) -> str:
        file = self.path / segment.name
        try:
            status = file.stat()
            seen = (status.st_ino, status.st_size, status.st_mtime_ns)
            if is_whole or self._checked.get(segment.name) != seen:
                damage = damage_of(self.path, segment, is_whole=is_whole)
                if damage is not None:
                    raise damaged_error(self.path, [damage])
                self._checked[segment.name] = seen
        except FileNotFoundError:
            pass
        return str(file)

    def gone(self, files: Iterable[str], error: Exception) -> list[str]:
        """Return the files that a read failed at with an error because they were removed."""
        return [file for file in files if not Path(file).exists()]

    def damage(self, segments: Iterable[Segment]) -> list[str]:
        """Return the problems of the files of segments."""
        return damage_in(self.path, segments, is_whole=True)

    @contextmanager
    def lock(self, *, wait: bool) -> Iterator[bool]:
        """Hold the lock for adding and removing files; yield whether it was acquired."""
        with locked(self.path / "writer.lock", wait=wait) as held:
            yield held

    def write(
        self, session: Session, log: SegmentLog, rows: str, buckets: tuple[int, int] = ALL_BUCKETS
    ) -> Segment:
        """Write the rows of a query, all of a range of buckets, as a new segment."""
        name = self.new_name(log, buckets)
        self._announce(Segment(name, log.kind, 0, buckets))
        file = self.path / name
        count = write_parquet(session, f"{rows} ORDER BY {log.order}", file)
        return Segment(name, log.kind, count, buckets, checksum=checksum_of(file))

    def new_name(self, log: SegmentLog, buckets: tuple[int, int] = ALL_BUCKETS) -> str:
        """Return the name of a new segment."""
        first, last = buckets
        return f"{log.kind}-{first:04}-{last:04}-{new_id()}{_SUFFIX}"

    def merge(self, session: Session, log: SegmentLog, merge: SegmentMerge) -> list[Segment]:
        """Write the rows of several segments as new ones."""
        # Damage that was copied would have a valid checksum.
        rows = parquet(self.files(merge.segments, is_whole=True), by_name=log.has_grown)
        written = [
            self.write(
                session, log, f"{rows} WHERE bucket BETWEEN {first} AND {last}", (first, last)
            )
            for first, last in merge.ranges
        ]
        self.remove(segment.name for segment in written if not segment.rows)
        return [segment for segment in written if segment.rows]

    def count(self, session: Session, segment: Segment, condition: str) -> int:
        """Return how many rows of a segment meet a condition."""
        rows = parquet(self.files([segment]))
        count: int = scalar(session.run(f"SELECT count(*) FROM ({rows}) WHERE {condition}"))
        return count

    def without(
        self, session: Session, log: SegmentLog, segment: Segment, condition: str, count: int
    ) -> list[Segment]:
        """Write a segment again without the rows that meet a condition; none if these are all."""
        if count == segment.rows:
            return []
        rows = f"{parquet(self.files([segment], is_whole=True))} WHERE NOT ({condition})"
        return [self.write(session, log, rows, segment.buckets)]

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            (self.path / name).unlink(missing_ok=True)
            (self.path / (name + _UNFINISHED)).unlink(missing_ok=True)

    def others(self, known: Iterable[str]) -> set[str]:
        """Return the names of files, also of unfinished ones, that are not among the known ones."""
        files = {file.name for file in self.path.iterdir()}
        written = {name for name in files if name.endswith((_SUFFIX, _UNFINISHED))}
        return written - {end for name in known for end in (name, name + _UNFINISHED)}


def write_parquet(session: Session, rows: str, file: Path) -> int:
    """Write the rows of a query to a file, which is durable when it exists; return their number."""
    unfinished = file.with_name(file.name + _UNFINISHED)
    count: int = scalar(
        session.run(
            f"COPY ({rows}) TO {text(unfinished)}"
            " (FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false)"
        )
    )
    fsync(unfinished)
    unfinished.rename(file)
    fsync(file.parent)
    return count


def fsync(path: Path) -> None:
    """Write a file or the entries of a folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class SegmentMerge(NamedTuple):
    """Segments to merge, and the ranges of buckets that the merged rows are divided into."""

    segments: Sequence[Segment]
    ranges: Sequence[tuple[int, int]]


def due_for_merge(
    segments: Sequence[Segment], segment_rows: int, least: int = MERGE_COUNT
) -> SegmentMerge | None:
    """Return a segment that is to be divided, or segments that are to be merged, or None.

    The segments of a tier have eight times as many rows per bucket as those of the tier below, so
    a row is rewritten once per tier, and not again in the top tier. From the third tier on, rows
    are divided by bucket into files of the same size, so that a process that works on some of the
    buckets reads few files. ``least`` is how many of the first tier are merged.
    """
    groups: dict[tuple[int, tuple[int, int]], list[Segment]] = {}
    for segment in segments:
        tier = _tier(segment, segment_rows)
        ranges = _ranges(segment.buckets, tier)
        if len(ranges) > 1:
            return SegmentMerge([segment], ranges)
        groups.setdefault((tier, segment.buckets), []).append(segment)
    for (tier, buckets), same in sorted(groups.items()):
        if tier < _MAX_TIER and len(same) >= (MERGE_COUNT if tier else least):
            return SegmentMerge(same, _ranges(buckets, tier + 1))
    return None


def _tier(segment: Segment, segment_rows: int) -> int:
    first, last = segment.buckets
    tier, bound = 0, segment_rows * MERGE_COUNT
    while segment.rows * BUCKETS >= bound * (last - first + 1):
        tier, bound = tier + 1, bound * MERGE_COUNT
    return tier


def _ranges(buckets: tuple[int, int], tier: int) -> list[tuple[int, int]]:
    """Return the parts of a range of buckets that files of a tier have."""
    first, last = buckets
    width = max(1, BUCKETS // MERGE_COUNT ** max(0, min(tier, _MAX_TIER) - 1))
    return [(start, min(start + width - 1, last)) for start in range(first, last + 1, width)]
