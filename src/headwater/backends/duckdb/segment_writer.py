"""Move recent rows into segments, merge small ones, add imported rows, and remove rows for good.

At every step a reader sees each row exactly once: the transaction that adds a segment to the
manifest also removes the rows or segments that it replaces. A segment with removed rows is written
again without them. What was interrupted is completed by the next one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from headwater.backends.duckdb.segments import (
    EVENTS,
    HISTORY,
    LOGS,
    MERGE_COUNT,
    SegmentFolder,
    SegmentLog,
    due_for_merge,
    open_recent,
)
from headwater.backends.observed import count_erased
from headwater.core.clock import Clock, to_micros
from headwater.core.duckdb_session import Session, scalar, session, sweep
from headwater.core.logging import log as logger
from headwater.core.partitioning import bucket_of
from headwater.core.sql_literals import text, texts
from headwater.errors import BackendError, InvalidInputError
from headwater.ports import Change, LogKind, Mark, Pruned, RecentHistory, Segment, history_rows
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


class _TooLargeError(BackendError):
    """Rows that do not fit into the memory of a session."""


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
        self._others: set[str] = set()

    def maintain(self, *, everything: bool = False) -> None:
        """Do all due work, unless another process is doing it.

        With ``everything``, wait for that process, move every row that can be moved, and leave one
        small segment. A log whose rows do not fit into the memory of a session holds up nothing
        else.
        """
        with self._folder.lock(wait=everything) as held:
            if not held:
                return
            self._clean_up()
            too_large: _TooLargeError | None = None
            for log in LOGS.values():
                try:
                    while (upto := self._tail.bound(log.kind, self._segment_rows)) is not None:
                        self._move(log, upto)
                    if everything and (upto := self._last(log.kind)) is not None:
                        self._move(log, upto)
                    while self._merge(log, least=2 if everything else MERGE_COUNT):
                        pass
                except _TooLargeError as error:
                    too_large = error
            self._tail.prune(self._clock.now())
        if too_large is not None:
            raise too_large

    @contextmanager
    def _session(self) -> Iterator[Session]:
        """Open a session for rows of the store, which are no bad input if they are too large."""
        try:
            with session(self._scratch) as duck:
                self._folder.prepare(duck)
                yield duck
        except InvalidInputError as error:
            raise _TooLargeError(
                f"rows of the history in {self._folder.path} stay where they are: {error}"
            ) from error

    def _clean_up(self) -> None:
        sweep(self._scratch)
        manifest = self._tail.manifest()
        others = self._folder.others(segment.name for segment in manifest)
        if others - self._others:
            logger.warning(
                "segments of another database are not read",
                files=len(others),
                example=min(others),
                remedy="if they belong to this store, restore its database; else move them away",
            )
        self._others = others
        before = self._clock.now() - self._grace
        expired = [s.name for s in manifest if s.retired_at is not None and s.retired_at <= before]
        self._folder.remove(expired)
        self._tail.forget_segments(expired)

    def _move(self, log: SegmentLog, upto: Mark) -> None:
        with self._session() as duck:
            snapshot = self._tail.snapshot(duck.folder, [log.kind], upto=upto)[log.kind]
            duck.load("tail", snapshot.tail, log.columns, longest=snapshot.longest)
            segment = self._folder.write(duck, log, log.typed + "tail")
        self._tail.add(segment, upto=upto)
        logger.debug("segment written", kind=log.kind, rows=segment.rows)

    def _last(self, kind: LogKind) -> Mark | None:
        """Return the mark of the last movable row of fewer than a segment; None if none is."""
        numbers = range(1, self._segment_rows)
        rows = bisect_left(numbers, 1, key=lambda n: self._tail.bound(kind, n) is None)
        return self._tail.bound(kind, rows) if rows else None

    def _merge(self, log: SegmentLog, *, least: int) -> bool:
        """Merge segments, so many of the smallest tier; return whether some were due."""
        merge = due_for_merge(self._live(log.kind), self._segment_rows, least)
        if merge is None:
            return False
        with self._session() as duck:
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
            self._folder.prepare(duck)
            admitted = self._tail.ledger().admitted(changes, lambda _: True)
            count_erased("value", admitted.dropped)
            changes = admitted.changes
            if not changes:
                return 0
            features = sorted({change.feature for change in changes})
            open_recent(duck, HISTORY, self._tail, self._folder, features=features)
            duck.load_rows("imported", _imported(changes), HISTORY.columns)
            duck.run(_FRESH.format(features=texts(features)))
            count: int = scalar(duck.run("SELECT count(*) FROM fresh"))
            if count:
                # Numbered like the rows of the tail: among values with the same as_of and
                # written_at, a row that was imported later also sorts later.
                first = self._tail.reserve(count)
                self._tail.add(self._folder.write(duck, HISTORY, _NUMBERED.format(first=first)))
            return count

    def prune(self, history: datetime | None, events: datetime | None, *, dry_run: bool) -> Pruned:
        """Remove the rows from before the given moments that no later read needs."""
        with self._folder.lock(wait=True):
            return Pruned(
                history=0 if history is None else self._prune_history(history, dry_run=dry_run),
                events=0 if events is None else self._prune_events(events, dry_run=dry_run),
            )

    def _prune_history(self, before: datetime, *, dry_run: bool) -> int:
        with self._session() as duck:
            open_recent(duck, HISTORY, self._tail, self._folder)
            moment = _literal(before)
            duck.run(_KEPT.format(moment=moment))
            return self._remove_history(duck, _OLD_HISTORY.format(moment=moment), dry_run=dry_run)

    def _prune_events(self, before: datetime, *, dry_run: bool) -> int:
        count = self._tail.remove_events(before, dry_run=dry_run)
        with self._session() as duck:
            old = f"received_at < {_literal(before)}"
            return count + self._remove_from_segments(duck, EVENTS, old, dry_run=dry_run)

    def drop(self, series: str) -> int:
        """Remove all rows of a series; return their number."""
        with self._folder.lock(wait=True), self._session() as duck:
            open_recent(duck, HISTORY, self._tail, self._folder, features=[series])
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
        with self._folder.lock(wait=True), self._session() as duck:
            open_recent(duck, HISTORY, self._tail, self._folder, entity_ids=[entity_id])
            removed = self._tail.forget_events(entity_id, keep, dry_run=dry_run)
            removed += self._remove_from_segments(duck, EVENTS, events, dry_run=dry_run)
            # Last: if this is interrupted, history tells to whom the entity belonged.
            history = self._remove_history(duck, values, dry_run=dry_run)
            if not dry_run:
                self._tail.fence()
            return Pruned(history=history, events=removed)

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
            count = self._folder.count(duck, segment, condition)
            removed += count
            if count and not dry_run:
                written = self._folder.without(duck, log, segment, condition, count)
                self._tail.replace([segment.name], written, self._clock.now())
                logger.debug("segment pruned", kind=log.kind, rows=count)
        return removed

    def _live(self, kind: LogKind) -> list[Segment]:
        return [s for s in self._tail.manifest() if s.kind == kind and s.retired_at is None]


def _literal(moment: datetime) -> str:
    return f"make_timestamptz({to_micros(moment)})"


def _imported(changes: Sequence[Change]) -> list[dict[str, Any]]:
    """Return the changes as rows of recent history, numbered in order."""
    rows = enumerate(history_rows(changes, lambda value: bytes(value).decode()))
    return [
        dict(zip(HISTORY.columns, (n, *row[:3], bucket_of(row[2]), *row[3:]), strict=True))
        for n, row in rows
    ]
