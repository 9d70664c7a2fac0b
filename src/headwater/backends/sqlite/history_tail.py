"""The newest history and events in SQLite, and the manifest of the segments with the older ones."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path

from headwater.backends.sqlite.home import Home
from headwater.core.clock import from_micros, to_micros
from headwater.ports import LogKind, Segment, Snapshot

# One line of JSON per row, made by SQLite and read by DuckDB: faster here than any way through
# Python objects, and no second SQLite library comes near the file.
_LINES: dict[LogKind, str] = {
    "history": """
SELECT CAST(json_object(
    'seq', seq, 'feature', feature, 'entity', entity, 'entity_id', entity_id, 'kind', kind,
    'value', CAST(value AS TEXT), 'as_of', as_of, 'written_at', written_at, 'cause', cause
) AS BLOB)
FROM history
WHERE seq <= ?""",
    # A redriven event is in the log already.
    "events": """
SELECT CAST(json_object(
    'seq', seq, 'event_id', event_id, 'event_type', event_type, 'entity_id', entity_id,
    'timestamp', timestamp, 'received_at', received_at, 'payload', CAST(payload AS TEXT)
) AS BLOB)
FROM events
WHERE only_feature IS NULL AND seq <= ?""",
}

# The first event that some consumer group has not done. Partitions count up to and including
# :system; a group without a cursor for one of them has done nothing of it.
_FIRST_UNDONE = """
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
SELECT min((
    SELECT min(e.seq) FROM events e WHERE e.partition = done.partition AND e.seq > done.seq
))
FROM done
"""

_NO_BOUND = 2**63 - 1
_PRUNED_AT_ONCE = 5_000
_MOST_PRUNINGS = 20


class SqliteTail:
    """Reads in one short transaction; writes in one, under the lock that all writers share."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._pruned_to = ""

    def snapshot(
        self,
        folder: Path,
        kinds: Sequence[LogKind],
        *,
        features: Sequence[str] = (),
        entity_ids: Sequence[str] = (),
        upto: int | None = None,
    ) -> dict[LogKind, Snapshot]:
        bound = _NO_BOUND if upto is None else upto
        with self._reading() as db:
            return {
                kind: self._export(db, folder, kind, bound, features, entity_ids) for kind in kinds
            }

    def _export(
        self,
        db: sqlite3.Connection,
        folder: Path,
        kind: LogKind,
        bound: int,
        features: Sequence[str],
        entity_ids: Sequence[str],
    ) -> Snapshot:
        sql, arguments = _LINES[kind], [bound, *features, *entity_ids]
        if features:
            sql += f" AND feature IN ({_marks(features)})"
        if entity_ids:
            sql += f" AND entity_id IN ({_marks(entity_ids)})"
        file, longest = folder / f"{kind}.ndjson", 0
        with file.open("wb") as lines:
            for (line,) in db.execute(sql, arguments):
                longest = max(longest, len(line))
                lines.write(line + b"\n")
        live = [s for s in _manifest(db) if s.kind == kind and s.retired_at is None]
        return Snapshot(live, file, longest)

    def bound(self, kind: LogKind, rows: int) -> int | None:
        with self._reading() as db:
            done = _NO_BOUND if kind == "history" else self._done(db)
            row = db.execute(
                f"SELECT seq FROM {kind} WHERE seq <= ? ORDER BY seq LIMIT 1 OFFSET ?",
                (done, rows - 1),
            ).fetchone()
            return int(row[0]) if row else None

    def _done(self, db: sqlite3.Connection) -> int:
        (first,) = db.execute(_FIRST_UNDONE, {"system": self._home.partitions}).fetchone()
        return _NO_BOUND if first is None else int(first) - 1

    def manifest(self) -> list[Segment]:
        with self._reading() as db:
            return _manifest(db)

    def add(self, segment: Segment, *, upto: int = 0) -> None:
        with self._writing() as db:
            _insert(db, segment)
            db.execute(f"DELETE FROM {segment.kind} WHERE seq <= ?", (upto,))

    def replace(self, names: Sequence[str], merged: Segment, now: datetime) -> None:
        with self._writing() as db:
            _insert(db, merged)
            db.executemany(
                "UPDATE segments SET retired_at = ? WHERE name = ?",
                [(to_micros(now), name) for name in names],
            )

    def forget(self, names: Sequence[str]) -> None:
        if names:
            with self._writing() as db:
                db.executemany("DELETE FROM segments WHERE name = ?", [(name,) for name in names])

    def reserve(self, rows: int) -> int:
        with self._writing() as db:
            # The table behind AUTOINCREMENT, which has no row before the first insert.
            row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'history'").fetchone()
            last = row[0] if row else 0
            if row:
                db.execute(
                    "UPDATE sqlite_sequence SET seq = ? WHERE name = 'history'", (last + rows,)
                )
            else:
                db.execute("INSERT INTO sqlite_sequence VALUES ('history', ?)", (rows,))
            return int(last) + 1

    def prune(self, now: datetime) -> None:
        moment = to_micros(now)
        for _ in range(_MOST_PRUNINGS):
            if not self._prune(moment):
                return

    def _prune(self, now: int) -> bool:
        """Goes on through the seen ids by a bounded step; says whether it found expired ones."""
        with self._reading() as db:
            rows = db.execute(
                "SELECT event_id, expires_at FROM seen WHERE event_id > ?"
                " ORDER BY event_id LIMIT ?",
                (self._pruned_to, _PRUNED_AT_ONCE),
            ).fetchall()
        self._pruned_to = rows[-1][0] if len(rows) == _PRUNED_AT_ONCE else ""
        expired = [(event_id, now) for event_id, expires_at in rows if expires_at <= now]
        if expired:
            with self._writing() as db:
                # Checked again: an id may have been published anew since it was read.
                db.executemany("DELETE FROM seen WHERE event_id = ? AND expires_at <= ?", expired)
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
        # Not through the writer's thread: a roller works in a thread of its own, rarely, and
        # must finish even when the event loop that asked for it is gone.
        with (
            self._home.translated(),
            closing(self._home.write_lock()) as lock,
            lock,
            closing(self._home.connect()) as db,
        ):
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")


def _manifest(db: sqlite3.Connection) -> list[Segment]:
    rows = db.execute("SELECT name, kind, rows, retired_at FROM segments ORDER BY name")
    return [
        Segment(name, kind, count, None if retired_at is None else from_micros(retired_at))
        for name, kind, count, retired_at in rows
    ]


def _insert(db: sqlite3.Connection, segment: Segment) -> None:
    db.execute(
        "INSERT INTO segments (name, kind, rows) VALUES (?, ?, ?)",
        (segment.name, segment.kind, segment.rows),
    )


def _marks(values: Sequence[str]) -> str:
    return ", ".join("?" * len(values))
