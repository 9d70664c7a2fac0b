"""Recent rows in a tail and the others in a lake, each of them exactly once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from pyiceberg.manifest import DataFile

from headwater.backends.lake.tables import (
    LakeConflictError,
    LakeState,
    LakeTable,
    expire,
    referenced,
    refs_of,
)
from headwater.core.clock import from_micros
from headwater.errors import BackendUnavailableError
from headwater.model.catalog import CatalogState
from headwater.model.events import EventPage
from headwater.ports import (
    EventFilter,
    LakeTail,
    Ledger,
    LogKind,
    Mark,
    Segment,
    Snapshot,
)

# The lake has the rows that the tail has removed, so the second attempt finds them, unless rows
# are moved between any two reads.
_ATTEMPTS = 100


class LakeHistory:
    """The tables of a lake as the manifest of segments, beside a tail.

    Changes are made by one writer at a time, under the lock, from the states that the tables had
    when it was acquired. A writer that lost the lock without noticing, such as a process that was
    stopped, has older states, and its changes are refused.
    """

    def __init__(self, tail: LakeTail, tables: Mapping[LogKind, LakeTable]) -> None:
        self._tail = tail
        self.tables = tables
        self._base: dict[LogKind, LakeState] = {}
        self.written: dict[str, DataFile] = {}
        """The entries of files that are written and not committed yet."""

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock without the tables, which may not exist yet."""
        with self._tail.lock(wait=True):
            yield

    @contextmanager
    def lock(self, *, wait: bool) -> Iterator[bool]:
        with self._tail.lock(wait=wait) as held:
            if held:
                self.written.clear()
                self._base = {kind: table.state() for kind, table in self.tables.items()}
                # A writer may have died between its commit and this.
                for kind, base in self._base.items():
                    self._tail.trim(kind, base.mark)
            yield held

    def snapshot(
        self,
        folder: Path,
        kinds: Sequence[LogKind],
        *,
        features: Sequence[str] = (),
        entity_ids: Sequence[str] = (),
        upto: Mark | None = None,
    ) -> dict[LogKind, Snapshot]:
        for _ in range(_ATTEMPTS):
            # Rows that are moved are exported from the state that they are committed to.
            states = {
                kind: self._base[kind] if upto is not None else self.tables[kind].state()
                for kind in kinds
            }
            marks = {kind: state.mark for kind, state in states.items()}
            rows = self._tail.export(
                folder, marks, features=features, entity_ids=entity_ids, upto=upto
            )
            if rows is not None:
                return {
                    kind: Snapshot(states[kind].segments, rows[kind].file, rows[kind].longest)
                    for kind in kinds
                }
        raise BackendUnavailableError(
            "rows are moved to the lake faster than they can be read; try again"
        )

    def bound(self, kind: LogKind, rows: int) -> Mark | None:
        return self._tail.bound(kind, rows, after=self._base[kind].mark)

    def has(self, kind: LogKind, rows: int, after: Mark) -> bool:
        """Return whether the tail has so many movable rows after a mark."""
        return self._tail.bound(kind, rows, after=after) is not None

    def manifest(self) -> list[Segment]:
        return [s for kind in self.tables for s in self._base[kind].segments]

    def announce(self, segment: Segment, now: datetime) -> None:
        """Do nothing: files that no commit names are found by their names."""

    def add(self, segment: Segment, *, upto: Mark | None = None) -> None:
        if upto is not None:
            self._tail.announce_move(segment.kind, upto)
        added = [self.written.pop(segment.name)]
        self._commit(segment.kind, added, (), upto)
        if upto is not None:
            self._tail.trim(segment.kind, upto)

    def replace(self, names: Sequence[str], merged: Sequence[Segment], now: datetime) -> None:
        kind: LogKind = "history" if names[0] in self._base["history"].files else "events"
        self._commit(kind, [self.written.pop(segment.name) for segment in merged], names, None)

    def fence(self) -> None:
        """Let every change be refused that was begun before this."""
        for kind in self.tables:
            self._commit(kind, (), (), None)

    def _commit(
        self, kind: LogKind, added: Sequence[DataFile], removed: Sequence[str], mark: Mark | None
    ) -> None:
        # A prune notes its moment before it removes rows.
        pruned = self._tail.catalog().pruned.history
        self._base[kind] = self.tables[kind].commit(
            self._base[kind], added=added, removed=removed, mark=mark, pruned=pruned
        )

    def refs(self) -> set[str]:
        """Return the tags and branches of other engines, such as ``history.train``."""
        return {f"{kind}.{name}" for kind, it in self.tables.items() for name in refs_of(it.load())}

    def expired(self, before: datetime | None, refs: Collection[str]) -> Iterator[set[str]]:
        """Expire the snapshots of before a moment, or all but the current; yield their files.

        In the latter case ``refs`` are removed, and there may be no others.
        """
        for kind, table in self.tables.items():
            loaded = table.load()
            removed = {name for name in refs_of(loaded) if f"{kind}.{name}" in refs}
            if before is None and removed != refs_of(loaded):
                raise LakeConflictError(f"another writer has made a tag of {kind}; try again")
            ids = [
                snapshot.snapshot_id
                for snapshot in loaded.metadata.snapshots
                if before is None or from_micros(snapshot.timestamp_ms * 1_000) < before
            ]
            files = expire(loaded, ids, removed)
            if files:
                self._base[kind] = table.state()
            yield files

    def referenced(self) -> set[str]:
        return {file for table in self.tables.values() for file in referenced(table.load())}

    def forget_segments(self, names: Sequence[str]) -> None:
        """Do nothing: see ``expired``."""

    def forget(self, entity: str, entity_id: str, keep: Collection[str]) -> None:
        """Remove whatever the tail has of an entity."""
        self._tail.forget(entity, entity_id, keep)

    def events_after(
        self, position: str | None, only: EventFilter, *, since: datetime, limit: int
    ) -> EventPage:
        return self._tail.events_after(position, only, since=since, limit=limit)

    def catalog(self) -> CatalogState:
        return self._tail.catalog()

    def settled(self) -> Mark | None:
        return self._tail.settled()

    def reserve(self, rows: int) -> int:
        return self._tail.reserve(rows)

    def remove(self, numbers: Sequence[int]) -> None:
        self._tail.remove(numbers)

    def remove_events(self, before: datetime, *, dry_run: bool) -> int:
        mark = self._base["events"].mark
        return self._tail.remove_events(before, after=mark, dry_run=dry_run)

    def forget_events(self, entity_id: str, keep: Collection[str], *, dry_run: bool) -> int:
        mark = self._base["events"].mark
        return self._tail.forget_events(entity_id, keep, after=mark, dry_run=dry_run)

    def ledger(self) -> Ledger:
        return self._tail.ledger()

    def prune(self, now: datetime) -> None:
        self._tail.prune(now)


class SnapshotHistory(LakeHistory):
    """History as it was in a snapshot of the lake, without a tail."""

    def __init__(
        self, tail: LakeTail, tables: Mapping[LogKind, LakeTable], snapshot_id: int
    ) -> None:
        super().__init__(tail, tables)
        self._snapshot_id = snapshot_id

    def snapshot(
        self,
        folder: Path,
        kinds: Sequence[LogKind],
        *,
        features: Sequence[str] = (),
        entity_ids: Sequence[str] = (),
        upto: Mark | None = None,
    ) -> dict[LogKind, Snapshot]:
        nothing = folder / "nothing.ndjson"
        nothing.touch()
        # Again for each read: the files of an expired snapshot are deleted.
        segments = self.tables["history"].state(self._snapshot_id).segments
        return {kind: Snapshot(segments, nothing, 0) for kind in kinds}
