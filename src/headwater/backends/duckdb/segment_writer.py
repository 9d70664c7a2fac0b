"""Move recent rows into segments, merge small segments, and add imported rows.

At every step a reader sees each row exactly once: the transaction that adds a segment to the
manifest also removes the rows or segments that it replaces.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headwater.backends.duckdb.segment_files import SegmentFolder, due_for_merge
from headwater.backends.duckdb.segment_schema import HISTORY, LOGS, SegmentLog, open_log
from headwater.backends.erased_writes import count_erased
from headwater.core.clock import Clock
from headwater.core.duckdb_session import scalar, session, sweep
from headwater.core.logging import log as logger
from headwater.core.partitioning import bucket_of
from headwater.core.sql_literals import texts
from headwater.ports import Change, RecentHistory, history_rows
from headwater.ports.history import VALUE_AS_JSON
from headwater.settings.groups import OfflineSettings

_FRESH = f"""
CREATE TABLE fresh AS
WITH present AS (
    SELECT feature, entity_id, as_of, cause, {VALUE_AS_JSON} AS value
    FROM headwater.history
    WHERE feature IN ({{features}})
),
incoming AS (SELECT *, {VALUE_AS_JSON} AS value FROM ({HISTORY.typed} imported))
SELECT incoming.*
FROM incoming ANTI JOIN present USING (feature, entity_id, as_of, cause, value)
QUALIFY row_number() OVER (
    PARTITION BY feature, entity_id, as_of, cause, value ORDER BY seq
) = 1
"""

_NUMBERED = """
SELECT * EXCLUDE (value) REPLACE ({first} + row_number() OVER (ORDER BY seq) - 1 AS seq)
FROM fresh
"""


class SegmentWriter:
    """The writer of segments, active in one process at a time."""

    def __init__(
        self,
        tail: RecentHistory,
        folder: SegmentFolder,
        scratch: Path,
        clock: Clock,
        settings: OfflineSettings,
    ) -> None:
        self._tail = tail
        self._folder = folder
        self._scratch = scratch
        self._clock = clock
        self._segment_rows = settings.segment_rows
        self._grace = settings.segment_grace

    def maintain(self) -> None:
        """Do all due work, unless another process is doing it."""
        with self._folder.lock(wait=False) as held:
            if not held:
                return
            self._clean_up()
            for log in LOGS.values():
                while (upto := self._tail.bound(log.kind, self._segment_rows)) is not None:
                    self._move(log, upto)
                while self._merge(log):
                    pass
            self._tail.prune(self._clock.now())

    def _clean_up(self) -> None:
        sweep(self._scratch)
        manifest = self._tail.manifest()
        self._folder.remove_all_but(segment.name for segment in manifest)
        before = self._clock.now() - self._grace
        expired = [s.name for s in manifest if s.retired_at is not None and s.retired_at <= before]
        self._folder.remove(expired)
        self._tail.forget(expired)

    def _move(self, log: SegmentLog, upto: int) -> None:
        with session(self._scratch) as duck:
            snapshot = self._tail.snapshot(duck.folder, [log.kind], upto=upto)[log.kind]
            duck.load("tail", snapshot.tail, log.columns, longest=snapshot.longest)
            segment = self._folder.write(duck, log, log.typed + "tail")
        self._tail.add(segment, upto=upto)
        logger.debug("segment written", kind=log.kind, rows=segment.rows)

    def _merge(self, log: SegmentLog) -> bool:
        """Merge segments; return whether some were due."""
        live = [s for s in self._tail.manifest() if s.kind == log.kind and s.retired_at is None]
        merge = due_for_merge(live, self._segment_rows)
        if merge is None:
            return False
        with session(self._scratch) as duck:
            merged = self._folder.merge(duck, log, merge)
        self._tail.replace([s.name for s in merge.segments], merged, self._clock.now())
        rows = sum(segment.rows for segment in merged)
        logger.debug("segments merged", kind=log.kind, segments=len(merge.segments), rows=rows)
        return True

    def add(self, changes: Sequence[Change]) -> int:
        """Write the changes that are not in history yet as a segment; return their number.

        Forgetting an entity needs the same lock, after its erasure is in the ledger.
        """
        with self._folder.lock(wait=True), session(self._scratch) as duck:
            admitted = self._tail.ledger().admitted(changes, lambda _: True)
            count_erased("value", admitted.dropped)
            changes = admitted.changes
            if not changes:
                return 0
            features = sorted({change.feature for change in changes})
            snapshot = self._tail.snapshot(duck.folder, ["history"], features=features)["history"]
            open_log(duck, HISTORY, snapshot, self._folder.path)
            duck.load_rows("imported", _imported(changes), HISTORY.columns)
            duck.run(_FRESH.format(features=texts(features)))
            count: int = scalar(duck.run("SELECT count(*) FROM fresh"))
            if count:
                # Numbered like the rows of the tail: among values with the same as_of and
                # written_at, a row that was imported later also sorts later.
                first = self._tail.reserve(count)
                self._tail.add(self._folder.write(duck, HISTORY, _NUMBERED.format(first=first)))
            return count


def _imported(changes: Sequence[Change]) -> list[dict[str, Any]]:
    """Return the changes as rows of recent history, numbered in order."""
    rows = enumerate(history_rows(changes, lambda value: bytes(value).decode()))
    return [
        dict(zip(HISTORY.columns, (n, *row[:3], bucket_of(row[2]), *row[3:]), strict=True))
        for n, row in rows
    ]
