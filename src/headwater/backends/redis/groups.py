"""The consumer groups of the store in Redis: their workers, their lag and their end."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import msgspec

from headwater.backends.redis.client import Redis, command, script_call
from headwater.backends.redis.keys import SET_ID, Keys
from headwater.backends.redis.streams import received_at
from headwater.core.clock import from_micros
from headwater.errors import GroupInUseError, UnknownGroupError
from headwater.model.admin import ConsumerGroup

_decode_set = msgspec.json.Decoder(frozenset[str]).decode


class _Position(NamedTuple):
    """How far a group is in one partition: times in microseconds, 0 for none."""

    waiting: int
    oldest: int
    committed: int


class RedisGroups:
    """The consumer groups that the streams of the store have, also those of other programs."""

    def __init__(self, redis: Redis, keys: Keys, ttl: float) -> None:
        self._redis = redis
        self._keys = keys
        self._ttl = max(1, round(ttl * 1000))

    async def groups(self) -> list[ConsumerGroup]:
        positions = await self._positions()
        names = sorted(positions)
        living = await self._redis.calls(
            [
                script_call("live_workers", [self._keys.named(name).workers], self._ttl, SET_ID)
                for name in names
            ]
        )
        return [
            _group(name, {worker.decode(): int(beat) for worker, beat in workers}, positions[name])
            for name, workers in zip(names, living, strict=True)
        ]

    async def _positions(self) -> dict[str, list[_Position]]:
        answers = await self._redis.calls(
            [script_call("groups", [keys.events], keys.groups) for keys in self._keys.parts]
        )
        positions: defaultdict[str, list[_Position]] = defaultdict(list)
        for partition in answers:
            for name, waiting, oldest, committed in partition:
                position = _Position(
                    waiting,
                    0 if oldest is None else received_at(oldest.decode()),
                    0 if committed is None else int(committed),
                )
                positions[name.decode(errors="replace")].append(position)
        return positions

    async def waiting(self, partition: int) -> dict[str, int]:
        keys = self._keys.parts[partition]
        groups = await self._redis.call(script_call("groups", [keys.events], keys.groups))
        return {name.decode(errors="replace"): waiting for name, waiting, *_ in groups}

    async def drop(self, name: str) -> None:
        names = await self._positions()
        if name not in names:
            raise UnknownGroupError(name, names)
        keys = self._keys.named(name)
        call = script_call("drop_group", [keys.workers, keys.declared], self._ttl)
        if workers := await self._redis.call(call):
            raise GroupInUseError(name, sorted(worker.decode()[SET_ID:] for worker in workers))
        await self._redis.calls(
            [
                script_call(
                    "drop_position",
                    [part.group, part.lease, part.events, part.outbox, part.unhandled(name)],
                    *(name, self._keys.group),
                )
                for part in keys.parts
            ]
        )

    async def declared(self, name: str) -> dict[str, frozenset[str]]:
        keys = self._keys.named(name)
        call = script_call("declared_by", [keys.workers, keys.declared], self._ttl, SET_ID)
        fields = iter(await self._redis.call(call))
        return {
            worker.decode(): _decode_set(features)
            for worker, features in zip(fields, fields, strict=True)
        }

    async def create(self, name: str, like: str) -> dict[int, str]:
        created, model = self._keys.named(name), self._keys.named(like)
        parts = zip(created.entity_parts, model.entity_parts, strict=True)
        answers = await self._redis.calls(
            [
                script_call("create_group", [own.group, other.group, own.events], name, like)
                for own, other in parts
            ]
        )
        return dict(enumerate(map(_position_text, answers)))

    async def positions(self, name: str) -> dict[int, str]:
        answers = await self._redis.calls(
            [
                command(part.group, "HGET", part.group, "cursor")
                for part in self._keys.named(name).entity_parts
            ]
        )
        return dict(enumerate(map(_position_text, answers)))


def _position_text(cursor: bytes | None) -> str:
    return "0" if cursor in (None, b"0-0") else cursor.decode()


def _group(name: str, workers: dict[str, int], positions: list[_Position]) -> ConsumerGroup:
    oldest = min((position.oldest for position in positions if position.oldest), default=None)
    committed = max(
        (position.committed for position in positions if position.committed), default=None
    )
    return ConsumerGroup(
        name=name,
        workers=sorted(workers),
        waiting=sum(position.waiting for position in positions),
        oldest_at=None if oldest is None else from_micros(oldest),
        committed_at=None if committed is None else from_micros(committed),
        heartbeats=[from_micros(workers[worker] * 1_000) for worker in sorted(workers)],
    )
