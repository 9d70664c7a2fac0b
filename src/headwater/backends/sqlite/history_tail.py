"""Recent history and events in SQLite, and the manifest of the segments with older ones."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import astuple

from headwater.backends.sqlite.erasures import SqliteErasures
from headwater.backends.sqlite.home import Home
from headwater.backends.sqlite.writer import erasing
from headwater.core.clock import from_micros, to_micros
from headwater.core.file_locks import locked
from headwater.core.partitioning import bucket_of, partition_of
from headwater.errors import HomeError, InvalidInputError, LakeAheadError
from headwater.model.catalog import CatalogState
from headwater.model.events import EventPage, FollowedEvent, LoggedEvent
from headwater.model.values import INTERNAL, ServiceEvent
from headwater.ports import (
    MOST_SKIPPED,
    EventFilter,
    FileChecksum,
    Ledger,
    LogKind,
    Mark,
    Segment,
    Snapshot,
    TailFile,
    decode_catalog,
)

# One line of JSON per row, written by SQLite and read by DuckDB. This is faster than passing Python
# objects, and DuckDB's SQLite library must not open the database file.
_LINES: dict[LogKind, str] = {
    "history": """
SELECT CAST(json_object(
    'seq', seq, 'feature', feature, 'entity', entity, 'entity_id', entity_id,
    'bucket', bucket(entity_id), 'kind', kind,
    'value', CAST(value AS TEXT), 'as_of', as_of, 'written_at', written_at, 'cause', cause
) AS BLOB)
FROM history
WHERE seq > ? AND seq <= ?""",
    # A redriven event is already in the log.
    "events": """
SELECT CAST(json_object(
    'seq', seq, 'event_id', event_id, 'event_type', event_type, 'entity_id', entity_id,
    'bucket', bucket(entity_id), 'partition', partition, 'timestamp', timestamp,
    'received_at', received_at, 'payload', CAST(payload AS TEXT), 'traceparent', traceparent
) AS BLOB)
FROM events
WHERE only_feature IS NULL AND seq > ? AND seq <= ?""",
}
# The last event of each partition that every consumer group has committed. Partitions are numbered
# from 0 to :system; a group without a cursor for a partition has committed nothing of it.
_DONE = """
WITH RECURSIVE
partitions (partition) AS (
    SELECT 0 UNION ALL SELECT partition + 1 FROM partitions WHERE partition < :system
),
groups AS (
    SELECT DISTINCT consumer_group FROM cursors
    UNION ALL SELECT NULL WHERE NOT EXISTS (SELECT * FROM cursors)
),
done AS (
    SELECT p.partition, min(coalesce(c.seq, 0)) AS seq
    FROM partitions p CROSS JOIN groups g
    LEFT JOIN cursors c ON c.consumer_group = g.consumer_group AND c.partition = p.partition
    GROUP BY p.partition
)
"""
_FIRST_UNCOMMITTED = f"""{_DONE}
SELECT min((
    SELECT min(e.seq) FROM events e WHERE e.partition = done.partition AND e.seq > done.seq
))
FROM done
"""
_OLD_EVENTS = "FROM events WHERE partition = ? AND seq <= ? AND received_at < ?"
# A redriven event is not part of the log.
_COUNT_OLD_EVENTS = f"SELECT count(*) {_OLD_EVENTS} AND only_feature IS NULL"
_EVENTS_OF_ID = """
FROM events
WHERE partition = ? AND entity_id = ?
  AND event_type NOT IN (SELECT value FROM json_each(?))
"""
_NO_LIMIT = 2**63 - 1
_PRUNE_ROWS = 5_000
_START = ("", "")
_PRUNE_STEPS = 20
_POSITION = re.compile(r"\d{1,18}")
_MAX_BYTES = 1 << 20
_FIRST = "SELECT min(seq) FROM events"
_END = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'events'"
# Numbers grow with the time of arrival, so this reads the newest events only.
_LAST_OLD = "SELECT seq FROM events WHERE seq > ? AND received_at < ? ORDER BY seq DESC LIMIT 1"
_MATCHING = f"""
FROM events
WHERE seq > ?1 AND seq <= ?2 AND only_feature IS NULL AND event_type NOT GLOB '{INTERNAL}*'
  AND (?3 IS NULL OR event_type = ?3) AND (?4 IS NULL OR entity_id = ?4)
"""
_COUNT = f"SELECT count(*) FROM (SELECT 1 {_MATCHING} LIMIT {MOST_SKIPPED})"
_PAGE = f"""
SELECT seq, event_type, entity_id, payload, timestamp, event_id, received_at, traceparent
{_MATCHING} ORDER BY seq LIMIT ?5
"""


class SqliteRecentHistory:
    """Recent history, read in short transactions and written under the write lock."""

    def __init__(self, home: Home, erasures: SqliteErasures) -> None:
        self._home = home
        self._erasures = erasures
        self._pruned_to = _START

    def catalog(self) -> CatalogState:
        with self._reading() as db:
            row = db.execute("SELECT state FROM catalog").fetchone()
        return CatalogState() if row is None else decode_catalog(row[0])

    def snapshot(
        self,
        folder: Path,
        kinds: Sequence[LogKind],
        *,
        features: Sequence[str] = (),
        entity_ids: Sequence[str] = (),
        upto: Mark | None = None,
    ) -> dict[LogKind, Snapshot]:
        with self._reading() as db:
            if moved := [kind for kind in kinds if _trimmed(db, kind) is not None]:
                raise HomeError(
                    str(self._home.path),
                    f"has its {moved[0]} in a lake",
                    "set lake.url to that lake",
                )
            snapshots = {}
            for kind in kinds:
                rows = _export(db, folder, kind, "", upto, features, entity_ids)
                live = [s for s in read_manifest(db) if s.kind == kind and s.retired_at is None]
                snapshots[kind] = Snapshot(live, rows.file, rows.longest)
            return snapshots

    def export(
        self,
        folder: Path,
        after: Mapping[LogKind, Mark],
        *,
        features: Sequence[str] = (),
        entity_ids: Sequence[str] = (),
        upto: Mark | None = None,
    ) -> dict[LogKind, TailFile] | None:
        with self._reading() as db:
            for kind, mark in after.items():
                self._check(db, kind, mark)
            if any((_trimmed(db, kind) or 0) > _number(mark) for kind, mark in after.items()):
                return None
            return {
                kind: _export(db, folder, kind, mark, upto, features, entity_ids)
                for kind, mark in after.items()
            }

    def announce_move(self, kind: LogKind, upto: Mark) -> None:
        with self._writing() as db:
            db.execute(
                "INSERT INTO meta VALUES (?, ?) ON CONFLICT DO UPDATE"
                " SET value = max(CAST(value AS INTEGER), excluded.value)",
                (_MOVED.format(kind), _number(upto)),
            )

    def _check(self, db: sqlite3.Connection, kind: LogKind, mark: Mark) -> None:
        known = max(_noted(db, _MOVED, kind) or 0, _trimmed(db, kind) or 0)
        if known < _number(mark):
            raise LakeAheadError(str(self._home.path), kind, mark, str(known))

    def trim(self, kind: LogKind, upto: Mark) -> None:
        with self._reading() as db:
            self._check(db, kind, upto)
            trimmed = _trimmed(db, kind)
        if trimmed is not None and trimmed >= _number(upto):
            return
        with self._writing() as db:
            if (_trimmed(db, kind) or 0) > _number(upto):
                return  # another writer has moved more since
            db.execute(f"DELETE FROM {kind} WHERE seq <= ?", (_number(upto),))
            db.execute("REPLACE INTO meta VALUES (?, ?)", (_TRIMMED.format(kind), _number(upto)))

    @contextmanager
    def lock(self, *, wait: bool) -> Iterator[bool]:
        with locked(self._home.segments / "writer.lock", wait=wait) as held:
            yield held

    def bound(self, kind: LogKind, rows: int, *, after: Mark = "") -> Mark | None:
        with self._reading() as db:
            last = _NO_LIMIT
            if kind == "events":
                parameters = {"system": self._home.partitions}
                (first,) = db.execute(_FIRST_UNCOMMITTED, parameters).fetchone()
                last = _NO_LIMIT if first is None else first - 1
            row = db.execute(
                f"SELECT seq FROM {kind} WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT 1 OFFSET ?",
                (_number(after), last, rows - 1),
            ).fetchone()
            return str(row[0]) if row else None

    def events_after(
        self, position: str | None, only: EventFilter, *, since: datetime, limit: int
    ) -> EventPage:
        with self._reading() as db:
            return read_events(db, position, only, since=to_micros(since), limit=limit)

    def manifest(self) -> list[Segment]:
        with self._reading() as db:
            return read_manifest(db)

    def announce(self, segment: Segment, now: datetime) -> None:
        with self._writing() as db:
            _insert(db, msgspec.structs.replace(segment, retired_at=now))

    def add(self, segment: Segment, *, upto: Mark | None = None) -> None:
        with self._writing() as db:
            _insert(db, segment)
            db.execute(f"DELETE FROM {segment.kind} WHERE seq <= ?", (_number(upto or ""),))

    def replace(self, names: Sequence[str], merged: Sequence[Segment], now: datetime) -> None:
        with self._writing() as db:
            for segment in merged:
                _insert(db, segment)
            db.executemany(
                "UPDATE segments SET retired_at = ? WHERE name = ?",
                [(to_micros(now), name) for name in names],
            )

    def forget_segments(self, names: Sequence[str]) -> None:
        if names:
            with self._writing() as db:
                db.executemany("DELETE FROM segments WHERE name = ?", [(name,) for name in names])

    def settled(self) -> None:
        """Return None: numbers grow in commit order."""

    def fence(self) -> None:
        """Do nothing: the lock of a file is lost with its process only."""

    def reserve(self, rows: int) -> int:
        with self._writing() as db:
            # The table that AUTOINCREMENT uses.
            db.execute("UPDATE sqlite_sequence SET seq = seq + ? WHERE name = 'history'", (rows,))
            (last,) = db.execute(
                "SELECT seq FROM sqlite_sequence WHERE name = 'history'"
            ).fetchone()
            return int(last) - rows + 1

    def remove(self, numbers: Sequence[int]) -> None:
        if numbers:
            with self._writing() as db, erasing(db):
                db.execute(
                    "DELETE FROM history WHERE seq IN (SELECT value FROM json_each(?))",
                    (json.dumps(numbers),),
                )

    def remove_events(self, before: datetime, *, after: Mark = "", dry_run: bool) -> int:
        with self._reading() if dry_run else self._writing() as db:
            done = db.execute(f"{_DONE} SELECT * FROM done", {"system": self._home.partitions})
            count = 0
            for partition, last in done.fetchall():
                bounds = (partition, last, to_micros(before))
                count += db.execute(_COUNT_OLD_EVENTS, bounds).fetchone()[0]
                if not dry_run:
                    db.execute(f"DELETE {_OLD_EVENTS}", bounds)
            return count

    def forget(self, entity: str, entity_id: str, keep: Collection[str]) -> None:
        """Do nothing: rows that are in a lake are deleted at once."""

    def ledger(self) -> Ledger:
        with self._reading() as db:
            return self._erasures.read(db)

    def forget_events(
        self, entity_id: str, keep: Collection[str], *, after: Mark = "", dry_run: bool
    ) -> int:
        partition = partition_of(entity_id, self._home.partitions)
        bounds = (partition, entity_id, json.dumps([*keep]))
        with self._reading() if dry_run else self._writing() as db:
            if dry_run:
                return int(db.execute(f"SELECT count(*) {_EVENTS_OF_ID}", bounds).fetchone()[0])
            with erasing(db):
                return db.execute(f"DELETE {_EVENTS_OF_ID}", bounds).rowcount

    def prune(self, now: datetime) -> None:
        moment = to_micros(now)
        for _ in range(_PRUNE_STEPS):
            if not self._prune(moment):
                return

    def _prune(self, now: int) -> bool:
        """Prune a bounded number of event ids; return True if some of them were expired."""
        with self._reading() as db:
            rows = db.execute(
                "SELECT event_id, entity_id, expires_at FROM seen"
                " WHERE (event_id, entity_id) > (?, ?) ORDER BY event_id, entity_id LIMIT ?",
                (*self._pruned_to, _PRUNE_ROWS),
            ).fetchall()
        self._pruned_to = rows[-1][:2] if len(rows) == _PRUNE_ROWS else _START
        expired = [(*key, now) for *key, expires_at in rows if expires_at <= now]
        if expired:
            with self._writing() as db:
                # Checked again: an id may have been published again since it was read.
                db.executemany(
                    "DELETE FROM seen WHERE event_id = ? AND entity_id = ? AND expires_at <= ?",
                    expired,
                )
        return bool(expired)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._home.translated():
            db = self._home.reader
            db.execute("BEGIN")
            try:
                yield db
            finally:
                db.execute("ROLLBACK")

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        # Not in the writer thread: the segment writer runs in another thread, rarely, and must
        # finish even if the event loop that started it is gone.
        with (
            self._home.translated(),
            closing(self._home.write_lock()) as lock,
            lock,
            closing(self._home.connect()) as db,
        ):
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")


_TRIMMED = "rows of {} that are in a lake only"
_MOVED = "rows of {} that may be in a lake"


def _trimmed(db: sqlite3.Connection, kind: LogKind) -> int | None:
    """Return up to which number rows are in a lake alone, or None if there is no lake."""
    return _noted(db, _TRIMMED, kind)


def _noted(db: sqlite3.Connection, key: str, kind: LogKind) -> int | None:
    row = db.execute("SELECT value FROM meta WHERE key = ?", (key.format(kind),)).fetchone()
    return None if row is None else int(row[0])


def is_in_lake(db: sqlite3.Connection) -> bool:
    """Return whether rows of the home have been moved into a lake."""
    return any(_trimmed(db, kind) is not None for kind in _LINES)


def _number(mark: Mark) -> int:
    return int(mark or 0)


def _export(
    db: sqlite3.Connection,
    folder: Path,
    kind: LogKind,
    after: Mark,
    upto: Mark | None,
    features: Sequence[str],
    entity_ids: Sequence[str],
) -> TailFile:
    bound = _NO_LIMIT if upto is None else _number(upto)
    sql, arguments = _LINES[kind], [_number(after), bound, *features, *entity_ids]
    if features:
        sql += f" AND feature IN ({_marks(features)})"
    if entity_ids:
        sql += f" AND entity_id IN ({_marks(entity_ids)})"
    db.create_function("bucket", 1, bucket_of, deterministic=True)
    file, longest = folder / f"{kind}.ndjson", 0
    with file.open("wb") as lines:
        for (line,) in db.execute(sql, arguments):
            longest = max(longest, len(line))
            lines.write(line + b"\n")
    return TailFile(file, longest)


_SEGMENTS = """
SELECT name, kind, rows, first_bucket, last_bucket, retired_at, size, ending, digest FROM segments
"""


def read_manifest(db: sqlite3.Connection) -> list[Segment]:
    """Return all segments, including retired and unfinished ones."""
    return [
        Segment(
            name,
            kind,
            count,
            buckets=(first, last),
            retired_at=None if retired_at is None else from_micros(retired_at),
            checksum=None if size is None else FileChecksum(size, ending, digest),
        )
        for name, kind, count, first, last, retired_at, size, ending, digest in db.execute(
            f"{_SEGMENTS} ORDER BY name"
        )
    ]


def _insert(db: sqlite3.Connection, segment: Segment) -> None:
    retired_at = None if segment.retired_at is None else to_micros(segment.retired_at)
    checksum = (None,) * 3 if segment.checksum is None else astuple(segment.checksum)
    db.execute(
        "REPLACE INTO segments VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (segment.name, segment.kind, segment.rows, *segment.buckets, retired_at, *checksum),
    )


def _marks(values: Sequence[str]) -> str:
    return ", ".join("?" * len(values))


def read_events(
    db: sqlite3.Connection, position: str | None, only: EventFilter, *, since: int, limit: int
) -> EventPage:
    """Return the events after a position that arrived since a time in microseconds."""
    ((end,),) = db.execute(_END).fetchall()
    if position is None:
        return EventPage([], str(end))
    if not _POSITION.fullmatch(position):
        raise InvalidInputError(
            f"{position[:60]!r} is not a position of this event log; pass one that it returned, or "
            "none to start at the end"
        )
    after, filters = int(position), (only.event_type, only.entity_id)
    ((first,),) = db.execute(_FIRST).fetchall()
    # How many events after the position are not in the tail any more.
    moved = max(0, (end if first is None else first - 1) - after)
    after, skipped = after + moved, min(moved, MOST_SKIPPED)
    if old := db.execute(_LAST_OLD, (after, since)).fetchone():
        ((count,),) = db.execute(_COUNT, (after, *old, *filters)).fetchall()
        skipped = min(skipped + count, MOST_SKIPPED)
        (after,) = old
    events: list[FollowedEvent] = []
    size = 0
    for row in db.execute(_PAGE, (after, end, *filters, limit)):
        events.append(_followed(row))
        size += len(row[3])
        if size >= _MAX_BYTES:
            break
    has_more = len(events) == limit or size >= _MAX_BYTES
    # A larger number is of a store that was deleted since.
    last = events[-1].position if has_more else str(end)
    return EventPage(events, last, has_more, skipped)


def _followed(row: tuple[Any, ...]) -> FollowedEvent:
    seq, event_type, entity_id, payload, at, event_id, received_at, traceparent = row
    event = ServiceEvent(
        *(event_type, entity_id, msgspec.json.decode(payload), from_micros(at), event_id),
        traceparent or msgspec.UNSET,
    )
    return FollowedEvent(LoggedEvent(event, from_micros(received_at)), str(seq))
