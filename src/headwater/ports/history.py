"""The past: every value and event that was, and the ways by which it gets there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from headwater.ports.values import Change


class Point(msgspec.Struct, frozen=True):
    """One entity at one moment."""

    entity_id: str
    at: datetime


class PastValue(msgspec.Struct, frozen=True):
    """A value as history keeps it: its JSON text, when it was true and when it was written."""

    value: bytes
    as_of: datetime
    written_at: datetime


class Rows(msgspec.Struct, frozen=True):
    """The result of a query: column names and rows in order."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


class OfflineStore(Protocol):
    """Everything that was: the history of every value, and the log of every event.

    A value that a commit or a put made durable is in history from that moment on. Appending the
    same changes again changes nothing.
    """

    async def append(self, changes: Sequence[Change]) -> None:
        """Adds past values in bulk, without touching the present ones."""
        ...

    async def as_of(
        self, features: Sequence[str], points: Sequence[Point], *, known: bool = False
    ) -> list[list[PastValue | None]]:
        """For each point, the last value of each feature that was true then, never a later one.

        With ``known``, the last one that had been written by then: exactly what a reader would
        have been served. A value ahead of the clock is known once written, and true only in its
        time. Among values of one moment, the one written last wins.
        """
        ...

    async def latest(
        self, entity: str, *, after: str, limit: int
    ) -> list[tuple[str, dict[str, PastValue]]]:
        """The next ids of an entity in sorted order, each with the last value of every feature.

        The last value is the one that ``as_of`` would give at the end of time.
        """
        ...

    async def query(self, sql: str, sources: Mapping[str, str]) -> Rows:
        """Runs a query over sources, the event log (``events``) and ``feature_history``."""
        ...

    async def maintain(self) -> None:
        """Does the housekeeping that is due; safe to call from many processes."""
        ...


LogKind = Literal["history", "events"]


class Segment(msgspec.Struct, frozen=True):
    """A file of rows that left the tail; a retired one has been merged into another."""

    name: str
    kind: LogKind
    rows: int
    retired_at: datetime | None = None


class Snapshot(msgspec.Struct, frozen=True):
    """One log at one moment: its live segments, and its tail as a file of JSON lines."""

    segments: Sequence[Segment]
    tail: Path
    longest: int


class RecentHistory(Protocol):
    """The newest rows of history and events, and the manifest of the segments that hold the rest.

    Its methods block and are called in a thread. Sequence numbers grow in the order of commits
    and never come back. Whoever changes the manifest is the only one to do so at that time.
    """

    def snapshot(
        self,
        folder: Path,
        kinds: Sequence[LogKind],
        *,
        features: Sequence[str] = (),
        entity_ids: Sequence[str] = (),
        upto: int | None = None,
    ) -> dict[LogKind, Snapshot]:
        """Exports the tails of some logs into a folder, all of one moment, each row once.

        History may be limited to some features and entities, any log to its oldest rows. Times
        are microseconds. An event that was published again for one feature alone is left out.
        """
        ...

    def bound(self, kind: LogKind, rows: int) -> int | None:
        """The number of the so-manieth oldest row that may leave the tail, if there are as many.

        An event may leave when every consumer group is done with it and all before it.
        """
        ...

    def manifest(self) -> list[Segment]:
        """All segments, also the retired ones."""
        ...

    def add(self, segment: Segment, *, upto: int = 0) -> None:
        """Adds a segment and removes the rows of the tail that it holds, as one."""
        ...

    def replace(self, names: Sequence[str], merged: Segment, now: datetime) -> None:
        """Adds a segment and retires those that were merged into it, as one."""
        ...

    def forget(self, names: Sequence[str]) -> None:
        """Takes segments whose files are gone out of the manifest."""
        ...

    def reserve(self, rows: int) -> int:
        """Sets sequence numbers of history aside for an import; gives the first."""
        ...

    def prune(self, now: datetime) -> None:
        """Forgets event ids whose dedup window is over, a bounded number of them."""
        ...


class OutboxBatch(msgspec.Struct, frozen=True):
    """Rows on their way from the present to the past: a JSON array, and where it ends.

    A row of history is ``[feature, entity, entity_id, kind, value, as_of, written_at, cause]``; one
    of events ``[position, received_at, event_type, entity_id, event_id, timestamp, payload]``.
    Times are microseconds.
    """

    rows: bytes
    count: int
    upto: str
    more: bool = False
    """Whether there may be more behind it."""


class StoreIdentity(msgspec.Struct, frozen=True):
    """Which store a server of the present has, and which past that one calls its own."""

    store_id: str | None
    past_id: str | None
    state: Literal["known", "new", "lost"]
    """Whether its past knows it, has not been asked yet, or holds what it does not have."""


IdentityChange = Literal["agreed", "lost", "adopted", "restored"]
"""What a store is told by its past: that both know nobody else, that it is that of another, that it
is its own from now on, that what was lost is here again."""


class Outbox(Protocol):
    """What a server of the present has committed and a server of the past has yet to take.

    It is kept by partition. Whoever takes it remembers how far, in the same transaction that
    keeps the rows, so that each row arrives once however often it is fetched.
    """

    partitions: int
    name: str
    """Where its store is, by which one that lost its data knows what was its own."""

    async def standing(self) -> StoreIdentity:
        """Whose outbox it is at present; only its own past takes anything."""
        ...

    async def note(self, store_id: str, past_id: str, news: IdentityChange) -> bool:
        """Tells a store; says whether it is so: not if another one is there by now."""
        ...

    async def filled(self) -> set[int]:
        """The partitions that may have something to take."""
        ...

    async def fetch(
        self, kind: LogKind, partition: int, after: str, limit: int
    ) -> OutboxBatch | None:
        """The next rows after a position ("" for the start), none if there are none.

        They are about as many as the limit says and of about a megabyte, but at least one.
        """
        ...

    async def settle(self, partition: int, history: str, events: str) -> None:
        """Lets go of rows up to these positions; events as far as every group is done with them."""
        ...
