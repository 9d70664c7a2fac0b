"""The other side of draining: an outbox in memory, with faults on order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from headwater.core.clock import to_micros
from headwater.core.codec import Kind
from headwater.ports import IdentityChange, LogKind, OutboxBatch, StoreIdentity
from tests.backends.postgres.story import START, after

Row = Sequence[Any]


class MemoryOutbox:
    """Keeps rows by partition until they are settled; positions grow and never come back."""

    def __init__(
        self, partitions: int = 4, name: str = "present", store_id: str | None = None
    ) -> None:
        self.partitions = partitions
        self.name = name
        self.now = StoreIdentity(store_id or name, None, "new")
        self.rows: dict[tuple[LogKind, int], list[tuple[int, bytes | None]]] = defaultdict(list)
        self.settled: list[tuple[int, str, str]] = []
        self.least = 0
        """How many rows are handed out at least: those of one commit are not parted."""
        self.asked = 0
        self.fetched = 0
        self.on_fetch: Callable[[], Awaitable[None]] | None = None
        self.on_settle: Callable[[], Awaitable[None]] | None = None
        self._position = 0

    def put(self, *rows: Row, kind: LogKind = "history", partition: int = 0) -> None:
        for row in rows:
            self.put_json(msgspec.json.encode(row), kind=kind, partition=partition)

    def put_json(self, row: bytes | None, *, kind: LogKind = "history", partition: int = 0) -> None:
        """Adds a row as its JSON text; one that is None is passed by, as a redriven event is."""
        self._position += 1
        self.rows[kind, partition].append((self._position, row))

    async def standing(self) -> StoreIdentity:
        return self.now

    async def note(self, store_id: str, past_id: str, news: IdentityChange) -> bool:
        if store_id != self.now.store_id:
            return False
        if news != "lost":
            self.now = StoreIdentity(store_id, past_id, "known")
        elif self.now.state == "new":
            self.now = StoreIdentity(store_id, None, "lost")
        return True

    async def filled(self) -> set[int]:
        self.asked += 1
        return {partition for (_, partition), rows in self.rows.items() if rows}

    async def fetch(
        self, kind: LogKind, partition: int, after: str, limit: int
    ) -> OutboxBatch | None:
        start = int(after or 0)
        waiting = [entry for entry in self.rows[kind, partition] if entry[0] > start]
        found = waiting[: max(limit, self.least)]
        if self.on_fetch is not None:
            await self.on_fetch()
        if not found:
            return None
        rows = [row for _, row in found if row is not None]
        self.fetched += len(rows)
        upto, more = str(found[-1][0]), len(found) < len(waiting)
        return OutboxBatch(b"[" + b",".join(rows) + b"]", len(rows), upto, more=more)

    async def settle(self, partition: int, history: str, events: str) -> None:
        if self.on_settle is not None:
            await self.on_settle()
        self.settled.append((partition, history, events))
        ends: dict[LogKind, str] = {"history": history, "events": events}
        for kind, end in ends.items():
            rows = self.rows[kind, partition]
            self.rows[kind, partition] = [row for row in rows if row[0] > int(end or 0)]


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
    """A row of history, of so many seconds after the start."""
    moment = to_micros(after(second))
    return (feature, entity, entity_id, kind, value, moment, moment, cause)


def event_row(
    number: int,
    payload: Any = None,
    *,
    event_type: str = "click",
    entity_id: str = "u1",
) -> Row:
    """A row of events; its number is its position, its id and its second."""
    timestamp = to_micros(after(number))
    received_at = to_micros(START) + number
    body = {"n": number} if payload is None else payload
    return (f"{number}-0", received_at, event_type, entity_id, f"e{number}", timestamp, body)
