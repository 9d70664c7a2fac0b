"""Remove rows of history and events for good, segment by segment.

A segment is written again without its removed rows, or retired if none is left, in one transaction
of the manifest. So a reader sees every other row exactly once, and a removal that was interrupted
is completed by the next one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from pathlib import Path

from headwater.backends.duckdb.segment_files import SegmentFolder
from headwater.backends.duckdb.segment_schema import EVENTS, HISTORY, SegmentLog, open_log
from headwater.core.clock import Clock, to_micros
from headwater.core.duckdb_session import Session, parquet, scalar, session
from headwater.core.logging import log as logger
from headwater.core.sql_literals import text
from headwater.ports import LogKind, Pruned, RecentHistory, Segment

# The rows that are true at the moment, and known at the moment. Every later read that finds a row
# from before the moment finds one of these.
_KEPT = """
CREATE TABLE kept AS
SELECT DISTINCT seq FROM (
    SELECT unnest([
        arg_max(seq, (as_of, written_at, seq)) FILTER (as_of <= {moment}),
        arg_max(seq, (as_of, written_at, seq)) FILTER (written_at <= {moment})
    ]) AS seq
    FROM headwater.history GROUP BY feature, entity_id
) WHERE seq IS NOT NULL
"""
_OLD_HISTORY = "as_of < {moment} AND written_at < {moment} AND seq NOT IN (FROM kept)"


class SegmentRetention:
    """Removes rows from segments and tail, in one process at a time."""

    def __init__(
        self, tail: RecentHistory, folder: SegmentFolder, scratch: Path, clock: Clock
    ) -> None:
        self._tail = tail
        self._folder = folder
        self._scratch = scratch
        self._clock = clock

    def prune(
        self, *, history: datetime | None, events: datetime | None, dry_run: bool = False
    ) -> Pruned:
        """Remove the rows from before the given moments that no later read needs."""
        with self._folder.lock(wait=True):
            return Pruned(
                history=0 if history is None else self._prune_history(history, dry_run=dry_run),
                events=0 if events is None else self._prune_events(events, dry_run=dry_run),
            )

    def _prune_history(self, before: datetime, *, dry_run: bool) -> int:
        with session(self._scratch) as duck:
            self._open_history(duck)
            moment = _literal(before)
            duck.run(_KEPT.format(moment=moment))
            return self._remove_history(duck, _OLD_HISTORY.format(moment=moment), dry_run=dry_run)

    def _prune_events(self, before: datetime, *, dry_run: bool) -> int:
        count = self._tail.remove_events(before, dry_run=dry_run)
        with session(self._scratch) as duck:
            old = f"received_at < {_literal(before)}"
            return count + self._remove_from_segments(duck, EVENTS, old, dry_run=dry_run)

    def drop(self, series: str) -> int:
        """Remove all rows of a series; return their number."""
        with self._folder.lock(wait=True), session(self._scratch) as duck:
            self._open_history(duck, features=[series])
            return self._remove_history(duck, f"feature = {text(series)}", dry_run=False)

    def forget(
        self, entity: str, entity_id: str, *, keep: Collection[str], dry_run: bool
    ) -> Pruned:
        """Remove the past values of an entity, and its events except some types."""
        values = f"entity = {text(entity)} AND entity_id = {text(entity_id)}"
        events = " AND ".join(
            [
                f"entity_id = {text(entity_id)}",
                *(f"event_type <> {text(kept_type)}" for kept_type in keep),
            ]
        )
        with self._folder.lock(wait=True), session(self._scratch) as duck:
            self._open_history(duck, entity_ids=[entity_id])
            recent = self._tail.forget_events(entity_id, keep, dry_run=dry_run)
            return Pruned(
                history=self._remove_history(duck, values, dry_run=dry_run),
                events=recent + self._remove_from_segments(duck, EVENTS, events, dry_run=dry_run),
            )

    def _open_history(
        self, duck: Session, *, features: Sequence[str] = (), entity_ids: Sequence[str] = ()
    ) -> None:
        snapshot = self._tail.snapshot(
            duck.folder, ["history"], features=features, entity_ids=entity_ids
        )["history"]
        open_log(duck, HISTORY, snapshot, self._folder.path)

    def _remove_history(self, duck: Session, condition: str, *, dry_run: bool) -> int:
        tail = f"SELECT seq FROM ({HISTORY.typed} headwater.history_tail) WHERE {condition}"
        numbers = [number for (number,) in duck.run(tail).fetchall()]
        if not dry_run:
            self._tail.remove(numbers)
        return len(numbers) + self._remove_from_segments(duck, HISTORY, condition, dry_run=dry_run)

    def _remove_from_segments(
        self, duck: Session, log: SegmentLog, condition: str, *, dry_run: bool
    ) -> int:
        removed = 0
        for segment in self._live(log.kind):
            rows = f"SELECT * FROM ({parquet([self._folder.path / segment.name])})"
            count = scalar(duck.run(f"SELECT count(*) FROM ({rows}) WHERE {condition}"))
            removed += count
            if count and not dry_run:
                kept = [] if count == segment.rows else [f"{rows} WHERE NOT ({condition})"]
                written = [self._folder.write(duck, log, query, segment.buckets) for query in kept]
                self._tail.replace([segment.name], written, self._clock.now())
                logger.debug("segment pruned", kind=log.kind, rows=count)
        return removed

    def _live(self, kind: LogKind) -> list[Segment]:
        return [s for s in self._tail.manifest() if s.kind == kind and s.retired_at is None]


def _literal(moment: datetime) -> str:
    return f"make_timestamptz({to_micros(moment)})"
