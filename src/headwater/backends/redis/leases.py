"""Consumer groups in Redis: a sorted set of workers by their last heartbeat, and their leases."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from headwater.backends.redis.client import Call, Redis, command, script_call
from headwater.backends.redis.keys import SET_ID, Keys
from headwater.backends.redis.notifications import Notifications
from headwater.backends.redis.online import RedisOnlineStore
from headwater.backends.redis.store_identity import loss_in, read_loss, reading
from headwater.backends.redis.streams import MILLISECOND, lease_text, received_at
from headwater.core.clock import from_micros
from headwater.core.logging import Outage
from headwater.errors import BackendError, GroupInUseError, UnknownGroupError
from headwater.model.admin import ConsumerGroup
from headwater.ports import Lease

# One heartbeat may fail because this process was stopped or too busy to read the reply.
_FAILED_HEARTBEATS = 2
_decode_set = msgspec.json.Decoder(frozenset[str]).decode


def _id_of(named: bytes) -> str:
    return blake2b(named, digest_size=SET_ID // 2).hexdigest()


class _Member:
    """A worker of this process: its leases, its features, and whether its heartbeats arrive."""

    def __init__(self, declared: Collection[str] = (), code: str = "") -> None:
        self.features = msgspec.json.encode(sorted(declared))
        self.declared_set = _id_of(code.encode() + self.features)
        self.code = _id_of(code.encode() or self.features)
        self.current_set = frozenset(declared)
        self.is_current = False
        self.generation = 0
        self.fenced = 0
        """The generation below which all leases are known to be void."""
        self.has_opened = False
        """Whether the group has its place in all partitions, also in those of other workers."""
        self.held: dict[int, Lease] = {}
        self.uncleared: set[int] = set()
        """Partitions that may be suspect because of this worker, which was only cut off."""
        self._last_heartbeat = time.monotonic()
        self._failed = 0

    @property
    def cut_off(self) -> int:
        """Milliseconds since the last heartbeat that arrived; 0 if they arrive."""
        if self._failed < _FAILED_HEARTBEATS:
            return 0
        return round((time.monotonic() - self._last_heartbeat) * 1000)

    def heartbeat_failed(self) -> None:
        self._failed += 1
        if self.cut_off:
            self.uncleared.update(self.held)

    def heartbeat_arrived(self, cleared: Collection[int]) -> None:
        self._last_heartbeat, self._failed = time.monotonic(), 0
        self.uncleared.difference_update(cleared)


class RedisLeases:
    """Leases that expire by the clock of the servers."""

    def __init__(
        self,
        redis: Redis,
        keys: Keys,
        notifications: Notifications,
        online: RedisOnlineStore,
        ttl: float,
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._notifications = notifications
        self._online = online
        self._ttl = max(1, round(ttl * 1000))
        # One server that does not answer must not keep leases on the others from being extended.
        self._patience = ttl / 4
        self._members: defaultdict[str, _Member] = defaultdict(_Member)
        self._retired: set[str] = set()
        self._outage = Outage("partitions")

    async def register(self, worker: str, declared: Collection[str] = (), code: str = "") -> None:
        before = self._members.get(worker)
        member = self._members[worker] = _Member(declared, code)
        if before is None:
            self._notifications.join(worker)
        await self.heartbeat(worker, [])
        if before is not None and before.declared_set != member.declared_set:
            await self._unlist(worker, before)

    async def heartbeat(self, worker: str, leases: Sequence[Lease]) -> list[str]:
        member = self._members[worker]
        uncleared = sorted(member.uncleared)
        calls = [
            self._heartbeat(worker, member),
            reading(self._keys),
            *map(self._extend, leases),
            *(self._clear(worker, partition) for partition in uncleared),
        ]
        try:
            membership, identity, *answers = await self._redis.calls_apart(calls, self._patience)
            if isinstance(membership, BackendError):
                raise membership
        except BackendError:
            member.heartbeat_failed()
            raise
        if not isinstance(identity, BackendError):
            self._online.loss = loss_in(identity, self._keys)
        for lease, is_valid in zip(leases, answers, strict=False):
            if is_valid == 0:
                self._notifications.mark_unknown(lease.partition)  # the next read finds it lost
        clearings = zip(uncleared, answers[len(leases) :], strict=True)
        member.heartbeat_arrived(
            [partition for partition, answer in clearings if not isinstance(answer, BackendError)]
        )
        return await self._follow(member, *membership)

    def _heartbeat(self, worker: str, member: _Member) -> Call:
        listed = "" if worker in self._retired else worker
        return script_call(
            "heartbeat",
            [self._keys.workers, self._keys.declared],
            *(listed, self._ttl, self._keys.wake, member.cut_off),
            *(member.declared_set, member.features, member.code),
        )

    async def _follow(
        self,
        member: _Member,
        workers: list[bytes],
        generation: int,
        fence: int,
        current: bytes,
        features: bytes,
    ) -> list[str]:
        """Apply the reply to a heartbeat; return the workers of the current set."""
        member.current_set = _decode_set(features)
        member.generation = generation
        member.is_current = current.decode() == member.declared_set
        if member.is_current and member.fenced < fence:
            await self._fence_all(member, fence)
        return sorted(name.decode() for name in workers)

    async def _fence_all(self, member: _Member, generation: int) -> None:
        """Void the leases of earlier generations; a server that fails is tried again later."""
        calls = [
            script_call("fence", [keys.group, keys.lease], generation) for keys in self._keys.parts
        ]
        answers = await self._redis.calls_apart(calls, self._patience)
        problems = [answer for answer in answers if isinstance(answer, BackendError)]
        if problems:
            self._outage.report("error", "partitions not fenced; retrying", problems[0], "fence")
        else:
            self._outage.recovered("fence")
            member.fenced = generation

    async def current_set(self, worker: str) -> frozenset[str]:
        return self._members[worker].current_set

    def _clear(self, worker: str, partition: int) -> Call:
        return script_call("clear", [self._keys.parts[partition].group], worker)

    def _extend(self, lease: Lease) -> Call:
        keys = self._keys.parts[lease.partition]
        arguments = (lease_text(lease), lease.owner, self._ttl)
        return script_call("extend", [keys.group, keys.lease], *arguments)

    async def claim(self, worker: str, partitions: Collection[int]) -> list[Lease]:
        behind = await self._behind(partitions)
        if not self._members[worker].is_current:
            return []
        await self._open_group(self._members[worker], behind)
        claimed = sorted({*partitions} - behind)
        calls = [self._claim(worker, partition) for partition in claimed]
        answers = await self._redis.calls_apart(calls, self._patience)
        self._report_problems(claimed, answers)
        if await self._behind(partitions) - behind:
            # Marked meanwhile: the lease may have come after those that were voided.
            return []
        leases = [
            Lease(partition, worker, answer[0], suspect=bool(answer[1]))
            for partition, answer in zip(claimed, answers, strict=True)
            if isinstance(answer, list)
        ]
        for lease in leases:
            self._members[worker].held[lease.partition] = lease
            self._notifications.mark_unknown(lease.partition)
        return leases

    async def _open_group(self, member: _Member, behind: Collection[int]) -> None:
        """Keep the events of all partitions for the group from its first worker on.

        Otherwise those of a partition whose worker is still starting could be deleted when all
        other groups are done with them.
        """
        if member.has_opened:
            return
        calls = [
            script_call("open_group", [keys.group, keys.events], self._keys.group)
            for partition, keys in enumerate(self._keys.parts)
            if partition not in behind
        ]
        answers = await self._redis.calls_apart(calls, self._patience)
        member.has_opened = not any(isinstance(answer, BackendError) for answer in answers)

    async def _behind(self, partitions: Collection[int]) -> frozenset[int]:
        """Return the partitions that are behind history; raise StoreLostError if all of these."""
        loss = await read_loss(self._redis, self._keys, self._patience)
        if loss is None:
            return frozenset()
        if loss.partitions is None or loss.partitions.issuperset(partitions):
            raise loss
        for partition in loss.partitions.intersection(partitions):
            self._outage.report(
                "error", "partition not claimed", loss, partition, partition=partition
            )
        return loss.partitions

    def _report_problems(self, partitions: Sequence[int], answers: Sequence[Any]) -> None:
        """Raise the error if no partition could be claimed; if some could not, log theirs."""
        problems = [answer for answer in answers if isinstance(answer, BackendError)]
        if problems and len(problems) == len(answers):
            raise problems[0]
        for partition, answer in zip(partitions, answers, strict=True):
            if isinstance(answer, BackendError):
                self._outage.report(
                    "error", "partition not claimed", answer, partition, partition=partition
                )
            else:
                self._outage.recovered(partition)

    def _claim(self, worker: str, partition: int) -> Call:
        keys = self._keys.parts[partition]
        return script_call(
            "claim",
            [keys.group, keys.lease, keys.events],
            *(worker, self._ttl, self._keys.group, self._members[worker].generation),
        )

    async def release(self, leases: Sequence[Lease]) -> None:
        await self._release_all(leases, "done")
        for lease in leases:
            self._members[lease.owner].held.pop(lease.partition, None)

    async def retire(self, worker: str) -> None:
        self._retired.add(worker)
        await self._unlist(worker, self._members[worker])

    async def _unlist(self, worker: str, member: _Member) -> None:
        listed = f"{member.declared_set}{worker}"
        await self._redis.call(script_call("retire", [self._keys.workers], listed, self._keys.wake))

    async def deregister(self, worker: str) -> None:
        self._notifications.leave(worker)
        await self.retire(worker)
        member = self._members.pop(worker)
        await self._release_all([*member.held.values()], "died")

    async def _release_all(self, leases: Sequence[Lease], how: str) -> None:
        calls: list[Call] = []
        for lease in leases:
            keys, held = self._keys.parts[lease.partition], lease_text(lease)
            names = [keys.group, keys.lease]
            calls.append(script_call("release", names, held, self._keys.wake, how))
        await self._redis.calls(calls)


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
        parts = self._keys.parts
        answers = await self._redis.calls([script_call("groups", [keys.events]) for keys in parts])
        places = [
            (keys.groups, *group)
            for keys, groups in zip(parts, answers, strict=True)
            for group in groups
        ]
        commits = await self._redis.calls(
            [
                command(prefix, "HGET", prefix.encode() + name, "committed")
                for prefix, name, *_ in places
            ]
        )
        positions: defaultdict[str, list[_Position]] = defaultdict(list)
        for (_, name, waiting, oldest), committed in zip(places, commits, strict=True):
            position = _Position(
                waiting,
                0 if oldest is None else received_at(oldest.decode()),
                int(committed or 0),
            )
            positions[name.decode(errors="replace")].append(position)
        return positions

    async def waiting(self, partition: int) -> dict[str, int]:
        keys = self._keys.parts[partition]
        groups = await self._redis.call(script_call("groups", [keys.events]))
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
    oldest = [position.oldest for position in positions if position.oldest]
    committed = [position.committed for position in positions if position.committed]
    return ConsumerGroup(
        name=name,
        workers=sorted(workers),
        waiting=sum(position.waiting for position in positions),
        oldest_at=from_micros(min(oldest)) if oldest else None,
        committed_at=from_micros(max(committed)) if committed else None,
        heartbeats=[from_micros(workers[worker] * MILLISECOND) for worker in sorted(workers)],
    )
