"""An embedded home with its history, for tests of internals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from headwater.backends.duckdb.store import DuckdbOfflineStore
from headwater.backends.runners.inline import InlineRunner
from headwater.backends.sqlite.erasures import SqliteErasures
from headwater.backends.sqlite.history_tail import SqliteRecentHistory
from headwater.backends.sqlite.home import Home
from headwater.backends.sqlite.online import SqliteOnlineStore
from headwater.backends.sqlite.writer import Writer
from headwater.core.clock import to_micros
from headwater.core.codec import Kind
from headwater.model.values import Cell
from headwater.ports import Change, LogKind, RecentHistory, Segment, Snapshot
from headwater.settings.groups import OfflineSettings
from headwater.testing import ManualClock

START = datetime(2026, 1, 1, tzinfo=UTC)
GRACE = timedelta(minutes=5)
PARTITIONS = 4


def after(seconds: float) -> datetime:
    """Return the time this many seconds after the start."""
    return START + timedelta(seconds=seconds)


class Embedded:
    """The parts of one home."""

    def __init__(self, home: Home, segment_rows: int) -> None:
        self.home = home
        self.segment_rows = segment_rows
        self.clock = ManualClock(START)
        self.writer = Writer(home, wake=lambda: None)
        self.erasures = SqliteErasures(home, self.writer)
        self.online = SqliteOnlineStore(home, self.writer, self.erasures, "headwater_workers")
        self.tail = SqliteRecentHistory(home, self.erasures)
        self.history = self.over(self.tail)

    def over(self, tail: RecentHistory) -> DuckdbOfflineStore:
        """Return a history over this home's segments with another tail."""
        settings = OfflineSettings(self.segment_rows, GRACE)
        folders = self.home.segments, self.home.scratch
        return DuckdbOfflineStore(tail, *folders, self.clock, settings, InlineRunner())

    def segment_files(self) -> set[str]:
        return {file.name for file in self.home.segments.glob("*.parquet*")}

    def live(self) -> set[str]:
        return {s.name for s in self.tail.manifest() if s.retired_at is None}

    def tail_rows(self, table: str = "history") -> int:
        (count,) = self.home.reader.execute(f"SELECT count(*) FROM {table}").fetchone()
        return int(count)


class SlowReaderTail(SqliteRecentHistory):
    """A tail whose reader is overtaken by a merge after each of its first snapshots."""

    def __init__(self, parts: Embedded, times: int) -> None:
        super().__init__(parts.home, parts.erasures)
        self.parts = parts
        self.times = times
        self.snapshots = 0

    def snapshot(
        self, folder: Path, kinds: Sequence[LogKind], **limits: Any
    ) -> dict[LogKind, Snapshot]:
        taken = super().snapshot(folder, kinds, **limits)
        self.snapshots += 1
        if self.snapshots <= self.times:
            for segment in taken["history"].segments:
                file = self.parts.home.segments / segment.name
                renamed = Segment(f"again-{segment.name}", "history", segment.rows)
                file.rename(file.with_name(renamed.name))
                self.replace([segment.name], [renamed], self.parts.clock.now())
        return taken


@contextmanager
def embedded(path: Path, segment_rows: int) -> Iterator[Embedded]:
    """Open a home, and close it afterwards."""
    home = Home(path, PARTITIONS)
    home.open()
    parts = Embedded(home, segment_rows)
    try:
        yield parts
    finally:
        parts.writer.close()
        home.close()


def change(
    value: object = 1,
    *,
    feature: str = "clicks",
    entity_id: str = "u1",
    kind: Kind = "int",
    as_of: datetime = START,
    written_at: datetime | None = None,
    cause: str = "test",
) -> Change:
    """Return a change of a feature."""
    raw = value if isinstance(value, bytes) else msgspec.json.encode(value)
    times = to_micros(as_of), to_micros(written_at or as_of)
    return Change(feature, "User", entity_id, kind, Cell(msgspec.Raw(raw), *times), cause)


def series(count: int) -> Sequence[Change]:
    """Return the values 0, 1, 2, … of one feature, a second apart."""
    return [change(number, as_of=after(number)) for number in range(count)]
