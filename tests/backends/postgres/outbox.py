"""An outbox in memory, with injected faults."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from headwater.core.clock import to_micros
from headwater.core.codec import Kind
from headwater.errors import StoreMismatchError
from headwater.ports import (
    CommittedWrites,
    DocumentWrite,
    LogKind,
    Mismatch,
    OutboxBatch,
    OutboxState,
    PositionedEvent,
    Positions,
    Rewound,
    StoreIdentity,
)
from tests.backends.postgres.story import START, after

Row = Sequence[Any]
Entry = bytes | CommittedWrites | None
"""A row of JSON, the documents of a commit, or a row that is skipped."""


class MemoryOutbox:
    """Rows by partition until they are settled; positions grow and are never reused.

    The time of a row is its position.
    """

    def __init__(self, partitions: int = 4, store_id: str = "store") -> None:
        self.partitions = partitions
        self.store = StoreIdentity(store_id)
        self.rows: dict[tuple[LogKind, int], list[tuple[int, Entry]]] = defaultdict(list)
        self.settled: defaultdict[int, Positions] = defaultdict(Positions)
        self.done: defaultdict[int, str] = defaultdict(str)
        """The last event of each partition that every group has committed."""
        self.least = 0
        """The least number of rows of a batch: rows of one commit are not split."""
        self.asked = 0
        self.fetched = 0
        self.on_fetch: Callable[[], Awaitable[None]] | None = None
        self.on_mismatch: Callable[[], Awaitable[None]] | None = None
        self.on_mark: Callable[[], Awaitable[None]] | None = None
        self.on_settle: Callable[[], Awaitable[None]] | None = None
        self._position = 0
        self._documents = 0

    def put(self, *rows: Row, kind: LogKind = "history", partition: int = 0) -> None:
        for row in rows:
            self.put_json(msgspec.json.encode(row), kind=kind, partition=partition)

    def put_json(self, row: bytes | None, *, kind: LogKind = "history", partition: int = 0) -> None:
        """Add a row as its JSON text; a row of None is skipped, as a redriven event is."""
        self._position += 1
        self.rows[kind, partition].append((self._position, row))

    def put_documents(
        self, *writes: DocumentWrite, partition: int = 0, at: int | None = None
    ) -> None:
        """Add the writes of documents of one commit; ``at`` is its time and position."""
        self._position = at or self._position + 1
        self._documents += 1
        committed = CommittedWrites(self._position, writes)
        self.rows["history", partition].append((self._position, committed))

    async def identity(self) -> StoreIdentity:
        return self.store

    def new_store_id(self) -> str:
        return f"{self.store.store_id}-adopted"

    async def confirm(self, store_id: str, new_id: str) -> bool:
        if store_id != self.store.store_id:
            return False
        self.store = StoreIdentity(new_id, is_confirmed=True)
        return True

    async def mark_behind(self, store_id: str, partitions: Collection[int]) -> None:
        if store_id == self.store.store_id:
            self.store = replace(self.store, behind=frozenset(partitions))

    async def rewind(
        self,
        partition: int,
        taken: Positions,
        events: AsyncIterator[Sequence[PositionedEvent]],
        *,
        is_lost: bool = False,
    ) -> Rewound | None:
        return None

    def pending(self) -> set[int]:
        return {partition for (_, partition), rows in self.rows.items() if rows}

    async def states(self) -> list[OutboxState]:
        self.asked += 1
        pending = self.pending()
        last = max([self.partitions, *pending, *self.settled])
        return [
            OutboxState(
                n in pending,
                self.settled.get(n, Positions()),
                has_documents=self._has_documents(n),
            )
            for n in range(last + 1)
        ]

    async def documents_mark(self) -> bytes | None:
        if self.on_mark is not None:
            await self.on_mark()
        return None if any(map(self._has_documents, self.pending())) else b"%d" % self._documents

    def _has_documents(self, partition: int) -> bool:
        return any(isinstance(row, CommittedWrites) for _, row in self.rows["history", partition])

    async def mismatch(self, partition: int, taken: Positions) -> Mismatch | None:
        if self.on_mismatch is not None:
            await self.on_mismatch()
        kinds: tuple[LogKind, LogKind] = ("history", "events")
        found = (self._mismatch(k, partition, a) for k, a in zip(kinds, taken, strict=True))
        return next(filter(None, found), None)

    def _mismatch(self, kind: LogKind, partition: int, after: str) -> Mismatch | None:
        settled = getattr(self.settled[partition], kind)
        positions = [position for position, _ in self.rows[kind, partition]]
        if after == settled or int(after or 0) in positions:
            return None
        problem = f"taken up to {after or 'none'}, settled up to {settled}"
        return Mismatch(problem, int(after or 0) > int(settled or 0))

    async def fetch(
        self, kind: LogKind, partition: int, after: str, limit: int, *, until: int | None = None
    ) -> OutboxBatch | None:
        start = int(after or 0)
        rows_of_kind = self.rows[kind, partition]
        if mismatch := self._mismatch(kind, partition, after):
            raise StoreMismatchError(mismatch.problem)
        end = self._position if until is None else until
        waiting = [entry for entry in rows_of_kind if start < entry[0] <= end]
        found = waiting[: max(limit, self.least)]
        if self.on_fetch is not None:
            await self.on_fetch()
        if not found:
            return None
        rows = [row for _, row in found if isinstance(row, bytes)]
        documents = [row for _, row in found if isinstance(row, CommittedWrites)]
        self.fetched += len(rows)
        upto, more = str(found[-1][0]), len(found) < len(waiting)
        return OutboxBatch(
            b"[" + b",".join(rows) + b"]",
            len(rows),
            upto,
            more=more,
            documents=documents,
            last_at=found[-1][0],
        )

    async def settle(self, partition: int, taken: Positions) -> Positions:
        if self.on_settle is not None:
            await self.on_settle()
        before = self.settled[partition]
        after = Positions(
            *(
                max(*pair, key=lambda position: int(position or 0))
                for pair in zip(before, taken, strict=True)
            )
        )
        self.settled[partition] = after
        kinds: tuple[LogKind, LogKind] = ("history", "events")
        for kind, end in zip(kinds, after, strict=True):
            rows = self.rows[kind, partition]
            self.rows[kind, partition] = [row for row in rows if row[0] > int(end or 0)]
        return after

    async def done_events(self) -> list[str]:
        return [self.done[partition] for partition in range(self.partitions)]


def value_row(
    value: Any,
    second: float = 0,
    *,
    feature: str = "clicks",
    entity: str = "User",
    entity_id: str = "u1",
    kind: Kind = "int",
    cause: str = "test",
) -> Row:
    """Return a row of history, so many seconds after the start."""
    moment = to_micros(after(second))
    return (feature, entity, entity_id, kind, value, moment, moment, cause)


def event_row(
    number: int,
    payload: Any = None,
    *,
    event_type: str = "click",
    entity_id: str = "u1",
) -> Row:
    """Return a row of events; its number is its position, its id and its second."""
    timestamp = to_micros(after(number))
    received_at = to_micros(START) + number
    body = {"n": number} if payload is None else payload
    return (f"{number}-0", received_at, event_type, entity_id, f"e{number}", timestamp, body)
