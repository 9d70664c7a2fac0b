"""Committed rows of history in Redis, until Postgres has stored them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from typing import NamedTuple, Protocol

import msgspec

from headwater.model.values import ServiceEvent
from headwater.ports.history import LogKind
from headwater.ports.vectors import DocumentWrite


class CommittedWrites(msgspec.Struct, frozen=True):
    """Writes of documents that were committed together, and the time of it in microseconds."""

    at: int
    writes: Sequence[DocumentWrite]


class OutboxBatch(msgspec.Struct, frozen=True):
    """Rows on their way to history: a JSON array, and the position of the last one.

    A row of history is ``[feature, entity, entity_id, kind, value, as_of, written_at, cause]``; a
    row of events ``[position, received_at, event_type, entity_id, event_id, timestamp, payload]``.
    Times are microseconds.
    """

    rows: bytes
    count: int
    upto: str
    more: bool = False
    """Whether more rows may follow."""
    documents: Sequence[CommittedWrites] = ()
    """Writes of documents that were committed between the rows of history."""
    last_at: int = 0
    """The time of the last row, in microseconds."""


class StoreIdentity(msgspec.Struct, frozen=True):
    """The store that an outbox belongs to, and whether history was confirmed to be its own."""

    store_id: str | None
    """None if the store is gone: the server lost its data while this process had it open."""
    is_confirmed: bool = False
    behind: frozenset[int] = frozenset()
    """The partitions that are known to be older than history: the server has an older copy."""
    catalog: int = 0
    """The revision of the catalog of features, of which history has a copy."""


class Mismatch(NamedTuple):
    """Why a partition does not continue the history."""

    problem: str
    is_behind: bool
    """Whether history has rows that the partition lacks; otherwise history lacks rows."""


class Positions(NamedTuple):
    """The last row of each kind that was taken from a partition ("" for none)."""

    history: str = ""
    events: str = ""


class PositionedEvent(NamedTuple):
    """An event that history has, and its position in its partition."""

    position: str
    event: ServiceEvent


class Rewound(NamedTuple):
    """What became of a partition that was behind history."""

    discarded: int = 0
    """Values that workers had computed since, which their events compute again."""
    moved: Sequence[str] = ()
    """The positions in history of events that no worker had handled, and that wait again."""
    repeated: int = 0
    """Events that were accepted twice, because the partition did not remember their ids."""


class OutboxState(msgspec.Struct, frozen=True):
    """A partition of an outbox: whether it may have rows to take, and the last ones settled."""

    has_pending: bool
    settled: Positions
    has_documents: bool = False
    """Whether there are writes of documents among the rows to take."""
    read_at: int = 0
    """The time of the outbox's server, in microseconds; no event that is added later is older."""


class Outbox(Protocol):
    """Committed rows that wait to be copied into history, by partition.

    The consumer stores its positions in the same transaction as the rows, so that each row
    arrives once however often it is fetched.
    """

    partitions: int

    async def identity(self) -> StoreIdentity:
        """Return which store this outbox belongs to at present."""

    def new_store_id(self) -> str:
        """Return a new id for this store."""

    async def confirm(self, store_id: str, new_id: str) -> bool:
        """Record that history belongs to a store, and rename it; return False if it is gone.

        Workers are given partitions of a confirmed store only. No partition of it is behind.
        """

    async def mark_behind(self, store_id: str, partitions: Collection[int]) -> None:
        """Record which partitions of a store are older than history, unless the store is gone.

        Their leases are void, and workers are given none of them.
        """

    async def rewind(
        self,
        partition: int,
        taken: Positions,
        events: AsyncIterator[Sequence[PositionedEvent]],
        *,
        is_lost: bool = False,
    ) -> Rewound | None:
        """Let the workers of a partition that is behind continue where history ends.

        What they computed after that is discarded, and its events are handled again. ``events`` are
        all that history has after the last one settled: those that were not handled wait again, at
        another position, and the others count as accepted. Returns None if the position does not
        tell which were handled; of a partition that is lost, none counts as handled then.
        """

    async def states(self) -> Sequence[OutboxState]:
        """Return the state of each partition."""

    async def documents_mark(self) -> bytes | None:
        """Return what every commit with documents changes; None while any of them is to be taken.

        As long as it stays the same, all documents were settled when it was first returned.
        """

    async def mismatch(self, partition: int, taken: Positions) -> Mismatch | None:
        """Return None if these are the last rows settled or still there, otherwise the problem.

        In case of a mismatch, the outbox or the history is an older copy, or a copy of the outbox
        has gone on with the same history.
        """

    async def fetch(
        self, kind: LogKind, partition: int, after: str, limit: int, *, until: int | None = None
    ) -> OutboxBatch | None:
        """Return the next rows after the last one taken ("" for none), or None if there are none.

        They are about as many as the limit and about a megabyte, but at least one; with ``until``,
        only those up to that time, in microseconds. Raises
        StoreMismatchError if ``after`` is a mismatch: rows would be missing, doubled, or mixed
        with those of another history.
        """

    async def settle(self, partition: int, taken: Positions) -> Positions:
        """Delete rows up to these positions, events once every group is done with them.

        Returns the last positions settled, which never go back.
        """

    async def done_events(self) -> Sequence[str]:
        """Return the last event of each partition that was taken and no group needs any more.

        Events are named by their positions, "" for none.
        """
