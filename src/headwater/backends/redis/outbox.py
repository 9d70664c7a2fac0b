"""What Redis has committed and the past has yet to take: changes and events, by partition."""

from __future__ import annotations

from typing import Any

import msgspec

from headwater.backends.redis.client import Redis, running, script
from headwater.backends.redis.keys import Keys
from headwater.backends.redis.store_identity import note, standing
from headwater.backends.redis.stream_codec import Entry, read_event, received_at
from headwater.backends.redis.stream_reader import next_entries
from headwater.core.clock import to_micros
from headwater.core.values import ServiceEvent
from headwater.errors import BackendError
from headwater.ports import IdentityChange, LogKind, OutboxBatch, StoreIdentity

# An entry of changes is all that one commit did, up to a batch of them.
_CHANGES_PER_ENTRY = 100
_ONLY = b"o"
_encode = msgspec.json.Encoder().encode


class RedisOutbox:
    """Hands rows over, and lets go of them when told that they have arrived."""

    def __init__(self, redis: Redis, keys: Keys, name: str) -> None:
        self.partitions = keys.partitions
        self.name = name
        self._redis = redis
        self._keys = keys

    async def standing(self) -> StoreIdentity:
        return await standing(self._redis, self._keys)

    async def note(self, store_id: str, past_id: str, news: IdentityChange) -> bool:
        return await note(self._redis, self._keys, store_id, past_id, news)

    async def filled(self) -> set[int]:
        answers = await self._redis.calls(
            [
                running(script("has_pending"), [keys.changes, keys.events, keys.outbox])
                for keys in self._keys.parts
            ]
        )
        return {partition for partition, filled in enumerate(answers) if filled}

    async def fetch(
        self, kind: LogKind, partition: int, after: str, limit: int
    ) -> OutboxBatch | None:
        keys = self._keys.parts[partition]
        history = kind == "history"
        key = keys.changes if history else keys.events
        count = max(1, limit // _CHANGES_PER_ENTRY) if history else limit
        entries, more = await next_entries(self._redis, key, after, count)
        if not entries:
            return None
        try:
            rows = _change_rows(entries) if history else _event_rows(entries)
        except msgspec.DecodeError as error:
            raise BackendError(
                f"what partition {partition} has for history cannot be read: {error}; it stays in "
                f"{key} until it is corrected there"
            ) from error
        return OutboxBatch(_encode(rows), len(rows), entries[-1][0].decode(), more)

    async def settle(self, partition: int, history: str, events: str) -> None:
        keys = self._keys.parts[partition]
        await self._redis.call(
            running(
                script("settle"),
                [keys.changes, keys.events, keys.outbox],
                *(history, events, self._keys.group),
            )
        )


_decode_rows = msgspec.json.Decoder(list[msgspec.Raw]).decode


def _change_rows(entries: list[Entry]) -> list[msgspec.Raw]:
    return [row for _, (_, changes) in entries for row in _decode_rows(changes)]


def _event_rows(entries: list[Entry]) -> list[tuple[Any, ...]]:
    """The events among the entries: what is none is a dead letter, what is redriven was here."""
    rows: list[tuple[Any, ...]] = []
    for position, fields in entries:
        event = read_event(fields)
        if isinstance(event, ServiceEvent) and _ONLY not in fields[::2]:
            place = position.decode()
            rows.append(
                (
                    place,
                    received_at(place),
                    event.event_type,
                    event.entity_id,
                    event.event_id,
                    to_micros(event.timestamp),
                    event.payload,
                )
            )
    return rows
