"""Committed changes and events that wait to be copied to Postgres, by partition."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from hashlib import sha1
from operator import attrgetter
from typing import Any

import msgspec
from msgspec.structs import replace

from headwater.backends.redis.client import Redis, command, script_call
from headwater.backends.redis.keys import Keys
from headwater.backends.redis.rewinding import POSITION_PARTS, Rewinder, read_cursors
from headwater.backends.redis.store_identity import new_store_id, read_identity
from headwater.backends.redis.streams import (
    MILLISECOND,
    Entry,
    next_entries,
    read_event,
    received_at,
)
from headwater.core.clock import to_micros
from headwater.errors import BackendError, StoreMismatchError
from headwater.model.values import ServiceEvent
from headwater.ports import (
    CommittedWrites,
    DocumentWrite,
    LogKind,
    Mismatch,
    OutboxBatch,
    OutboxState,
    Positions,
    StoreIdentity,
)

# An entry of changes holds the changes of one commit, up to a batch of them.
_CHANGES_PER_ENTRY = 100
_ONLY = b"o"
_DOCUMENTS = b"d"
_encode = msgspec.json.Encoder().encode


class RedisOutbox:
    """The outbox of the store in Redis."""

    def __init__(self, redis: Redis, keys: Keys, prefix: str, rewinder: Rewinder) -> None:
        self.rewind = rewinder.rewind
        self.partitions = keys.partitions
        self._redis = redis
        self._keys = keys
        self._prefix = prefix
        outboxes = [part.outbox for part in keys.parts]
        groups = [[key] for key in outboxes] if redis.clustered else [outboxes]
        # One call for each slot; a single server has all keys in one.
        self._documents_mark = [script_call("documents_mark", group) for group in groups]

    async def identity(self) -> StoreIdentity:
        catalog = self._keys.catalog
        # Concurrently, so that both calls share a round trip.
        identity, revision = await asyncio.gather(
            read_identity(self._redis, self._keys),
            self._redis.call(command(catalog, "HGET", catalog, "revision")),
        )
        return replace(identity, catalog=int(revision or 0))

    def new_store_id(self) -> str:
        return new_store_id(self._prefix)

    async def confirm(self, store_id: str, new_id: str) -> bool:
        call = script_call("confirm", [self._keys.meta], store_id, new_id)
        return bool(await self._redis.call(call))

    async def mark_behind(self, store_id: str, partitions: Collection[int]) -> None:
        if partitions and not self._redis.clustered:
            # The server was restored as a whole, and a commit writes to entities of all partitions.
            partitions = range(len(self._keys.parts))
        marked = " ".join(map(str, sorted(partitions)))
        call = script_call("mark_behind", [self._keys.meta], store_id, marked)
        # The mark first: a worker reads it after its claim, so no lease escapes both.
        if await self._redis.call(call):
            parts = [self._keys.parts[partition] for partition in partitions]
            groups = await self._redis.calls(
                [script_call("groups", [part.events]) for part in parts]
            )
            leases = [
                (part.groups + name, part.leases + name)
                for part, answer in zip(parts, groups, strict=True)
                for name in (name.decode(errors="replace") for name, *_ in answer)
            ]
            await self._redis.calls([script_call("void_lease", names) for names in leases])

    async def states(self) -> list[OutboxState]:
        answers = await self._redis.calls(
            [
                script_call("outbox_state", [keys.changes, keys.events, keys.outbox])
                for keys in self._keys.parts
            ]
        )
        return [
            OutboxState(
                bool(has_pending),
                Positions(history.decode(), events.decode()),
                has_documents=bool(has_documents),
                read_at=int(read_at),
            )
            for has_pending, history, events, has_documents, read_at in answers
        ]

    async def documents_mark(self) -> bytes | None:
        marks: list[bytes | None] = await self._redis.calls(self._documents_mark)
        return None if None in marks else b" ".join(mark or b"" for mark in marks)

    async def fetch(
        self, kind: LogKind, partition: int, after: str, limit: int, *, until: int | None = None
    ) -> OutboxBatch | None:
        keys = self._keys.parts[partition]
        is_history = kind == "history"
        key = keys.changes if is_history else keys.events
        count = max(1, limit // _CHANGES_PER_ENTRY) if is_history else limit
        upto = "" if until is None else until // MILLISECOND
        # Concurrently, so that both calls share a round trip.
        mismatch, (entries, more) = await asyncio.gather(
            self._mismatch(kind, partition, after),
            next_entries(self._redis, key, after.partition(POSITION_PARTS)[0], count, upto=upto),
        )
        if mismatch is not None:
            raise StoreMismatchError(mismatch.problem)
        if not entries:
            return None
        cursors = (
            f"{POSITION_PARTS}{_encode(read_cursors(after, entries)).decode()}"
            if is_history
            else ""
        )
        try:
            rows = _change_rows(entries) if is_history else _event_rows(entries)
            documents = _documents(entries) if is_history else ()
        except msgspec.DecodeError as error:
            raise BackendError(
                f"rows of partition {partition} for history cannot be decoded: {error}; they stay "
                f"in {key} until they are corrected there"
            ) from error
        return OutboxBatch(
            *(_encode(rows), len(rows), _position(entries[-1]) + cursors),
            more=more,
            documents=documents,
            last_at=received_at(entries[-1][0].decode()),
        )

    async def mismatch(self, partition: int, taken: Positions) -> Mismatch | None:
        history, events = await asyncio.gather(
            self._mismatch("history", partition, taken.history),
            self._mismatch("events", partition, taken.events),
        )
        mismatches = [mismatch for mismatch in (history, events) if mismatch is not None]
        return max(mismatches, key=attrgetter("is_behind"), default=None)

    async def _mismatch(self, kind: LogKind, partition: int, taken: str) -> Mismatch | None:
        keys = self._keys.parts[partition]
        stream = keys.changes if kind == "history" else keys.events
        call = script_call("last_taken", [stream, keys.outbox], kind, taken)
        settled, is_behind = await self._redis.call(call)
        if not settled:
            return None
        problem = (
            f"partition {partition} in Redis does not continue the history in Postgres: Postgres "
            f"took {kind} up to {_shown(taken) or 'none'}, Redis knows that it took them up to "
            f"{_shown(settled.decode())}; Redis or Postgres was restored from an older copy, or "
            "this Redis is a copy of another"
        )
        return Mismatch(problem, bool(is_behind))

    async def settle(self, partition: int, taken: Positions) -> Positions:
        keys = self._keys.parts[partition]
        names = [keys.changes, keys.events, keys.outbox]
        call = script_call("settle", names, *taken, self._keys.group)
        history, events = await self._redis.call(call)
        return Positions(history.decode(), events.decode())

    async def done_events(self) -> list[str]:
        answers = await self._redis.calls(
            [
                script_call("done_event", [keys.events, keys.outbox], self._keys.group)
                for keys in self._keys.parts
            ]
        )
        return [position.decode() for position in answers]


def _shown(position: str) -> str:
    """Return the id and the digest of a position."""
    return POSITION_PARTS.join(position.split(POSITION_PARTS, 2)[:2])


def _position(entry: Entry) -> str:
    """Return an entry's id and a digest of its fields: another server may use the same id."""
    entry_id, fields = entry
    digest = sha1(b"\0".join(fields), usedforsecurity=False).hexdigest()
    return f"{entry_id.decode()}{POSITION_PARTS}{digest}"


_decode_rows = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_documents = msgspec.json.Decoder(list[DocumentWrite]).decode


def _change_rows(entries: list[Entry]) -> list[msgspec.Raw]:
    return [
        row
        for _, (name, changes, *_) in entries
        if name != _DOCUMENTS
        for row in _decode_rows(changes)
    ]


def _documents(entries: list[Entry]) -> list[CommittedWrites]:
    """Return the writes of each commit; older ones have no time but that of their entry."""
    return [
        CommittedWrites(
            int(time[1]) if time else received_at(entry_id.decode()), _decode_documents(writes)
        )
        for entry_id, (name, writes, *time) in entries
        if name == _DOCUMENTS
    ]


def _event_rows(entries: list[Entry]) -> list[tuple[Any, ...]]:
    """Return the rows of the event log, without malformed entries and redriven events."""
    rows: list[tuple[Any, ...]] = []
    for entry_id, fields in entries:
        event = read_event(fields)
        if isinstance(event, ServiceEvent) and _ONLY not in fields[::2]:
            position = entry_id.decode()
            rows.append(
                (
                    position,
                    received_at(position),
                    event.event_type,
                    event.entity_id,
                    event.event_id,
                    to_micros(event.timestamp),
                    event.payload,
                    event.traceparent or None,
                )
            )
    return rows
