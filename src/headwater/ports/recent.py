"""The newest rows of history in an embedded home, and the segment files with the rest."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec

from headwater.core.partitioning import BUCKETS
from headwater.model.catalog import CatalogState
from headwater.model.events import EventPage
from headwater.ports.erasures import Ledger
from headwater.ports.history import EventFilter, LogKind

Mark: TypeAlias = str
"""How far the rows of a log were moved out of its tail; only the tail knows what it means."""


class FileChecksum(msgspec.Struct, frozen=True):
    """The size of a file, and SHA-256 digests of its last bytes and of all its bytes."""

    size: int
    ending: bytes
    digest: bytes


class Segment(msgspec.Struct, frozen=True):
    """A file of rows that were moved out of the tail; retired once merged into another file."""

    name: str
    kind: LogKind
    rows: int
    buckets: tuple[int, int] = (0, BUCKETS - 1)
    """The first and the last bucket whose entities may be in it."""
    retired_at: datetime | None = None
    checksum: FileChecksum | None = None
    """None until the file is written."""


class Snapshot(msgspec.Struct, frozen=True):
    """One log at one moment: its live segments, and its tail as a file of JSON lines."""

    segments: Sequence[Segment]
    tail: Path
    longest: int


class RecentHistory(Protocol):
    """The newest rows of history and events, and the manifest of the segments with the rest.

    Its methods block and are called in a thread. Sequence numbers are never reused, and
    grow in commit order up to ``settled``. Only one caller at a time may change the manifest.
    """

    def snapshot(
        self,
        folder: Path,
        kinds: Sequence[LogKind],
        *,
        features: Sequence[str] = (),
        entity_ids: Sequence[str] = (),
        upto: Mark | None = None,
    ) -> dict[LogKind, Snapshot]:
        """Export the tails of some logs into a folder, all of one moment, each row once.

        History can be limited to some features and entities, any log to its oldest rows. Times
        are microseconds. Events that were redriven for a single feature are left out.
        """

    def bound(self, kind: LogKind, rows: int) -> Mark | None:
        """Return the mark of the n-th oldest movable row, or None if there are fewer.

        An event can be moved when every consumer group is done with it and all events before it.
        """

    def events_after(
        self, position: str | None, only: EventFilter, *, since: datetime, limit: int
    ) -> EventPage:
        """Return the next events of the tail as ``OfflineStore.events_after`` does."""

    def catalog(self) -> CatalogState:
        """Return the catalog of features, whose names queries read."""

    def manifest(self) -> list[Segment]:
        """Return all segments, including retired ones."""

    def announce(self, segment: Segment, now: datetime) -> None:
        """Note a segment whose file is about to be written, as a retired one until it is added.

        So the file of a writer that dies is removed like that of a merged segment, and no file is
        removed that this store did not write.
        """

    def add(self, segment: Segment, *, upto: Mark | None = None) -> None:
        """Add a segment and remove its rows, those up to a mark, from the tail, as one change."""

    def replace(self, names: Sequence[str], merged: Sequence[Segment], now: datetime) -> None:
        """Add segments and retire those whose rows are in them, in one transaction."""

    def forget_segments(self, names: Sequence[str]) -> None:
        """Remove segments whose files are deleted from the manifest."""

    def settled(self) -> Mark | None:
        """Return a mark that no row of history can get any more; None if none can get a lower one.

        Numbers of rows that are not committed yet may be lower than those of others.
        """

    def fence(self) -> None:
        """Raise if another writer has changed the manifest since the lock was acquired.

        Changes that were begun before are refused from now on.
        """

    def reserve(self, rows: int) -> int:
        """Reserve sequence numbers of history for an import; return the first."""

    def remove(self, numbers: Sequence[int]) -> None:
        """Remove the rows of history with these sequence numbers from the tail."""

    def remove_events(self, before: datetime, *, dry_run: bool) -> int:
        """Remove the tail's events that were received before a moment; return their number.

        Only events that every consumer group has committed are removed.
        """

    def forget_events(self, entity_id: str, keep: Collection[str], *, dry_run: bool) -> int:
        """Remove the tail's events of an id, except some types; return their number.

        Events that a consumer group has not committed yet are never read by it.
        """

    def ledger(self) -> Ledger:
        """Return the erasures, which rows that are added to a segment are compared with."""

    def prune(self, now: datetime) -> None:
        """Delete event ids whose dedup window is over, a bounded number of them."""


class TailFile(msgspec.Struct, frozen=True):
    """Rows of a tail as a file of JSON lines, and the length of the longest one."""

    file: Path
    longest: int


class LakeTail(Protocol):
    """The newest rows of a store whose other rows are in a lake.

    Its methods block and are called in a thread. A row leaves the tail after it came into the lake,
    so a reader takes the rows of the lake first, and of the tail those after the lake's mark. The
    tail refuses a mark that is behind the rows it has removed; the lake then has a newer one.
    """

    def export(
        self,
        folder: Path,
        after: Mapping[LogKind, Mark],
        *,
        features: Sequence[str] = (),
        entity_ids: Sequence[str] = (),
        upto: Mark | None = None,
    ) -> dict[LogKind, TailFile] | None:
        """Export the rows after a mark of each log, all of one moment; None if one is behind.

        An empty mark is before all rows. The rest is as for ``RecentHistory.snapshot``.
        """

    def bound(self, kind: LogKind, rows: int, *, after: Mark = "") -> Mark | None:
        """Return the mark of the n-th movable row after a mark, or None if there are fewer."""

    def announce_move(self, kind: LogKind, upto: Mark) -> None:
        """Note that rows up to a mark may be in the lake from now on.

        ``export`` and ``trim`` raise LakeAheadError for a mark that was never announced: the tail
        is an older copy, and gives the numbers of rows in the lake to other ones.
        """

    def trim(self, kind: LogKind, upto: Mark) -> None:
        """Remove the rows up to a mark, and note the mark, in one transaction."""

    def lock(self, *, wait: bool) -> AbstractContextManager[bool]:
        """Hold the lock of all writers of the lake; yield whether it was acquired."""

    def events_after(
        self, position: str | None, only: EventFilter, *, since: datetime, limit: int
    ) -> EventPage:
        """See ``RecentHistory``, also for the following."""

    def catalog(self) -> CatalogState: ...

    def reserve(self, rows: int) -> int: ...

    def remove(self, numbers: Sequence[int]) -> None: ...

    def settled(self) -> Mark | None: ...

    def remove_events(self, before: datetime, *, after: Mark, dry_run: bool) -> int:
        """Remove events as ``RecentHistory`` does; count those after a mark."""

    def forget_events(
        self, entity_id: str, keep: Collection[str], *, after: Mark, dry_run: bool
    ) -> int:
        """Remove events as ``RecentHistory`` does; count those after a mark."""

    def forget(self, entity: str, entity_id: str, keep: Collection[str]) -> None:
        """Remove whatever is left of an entity, also rows that are in the lake already."""

    def ledger(self) -> Ledger: ...

    def prune(self, now: datetime) -> None: ...
