"""Who works here: a sorted set of workers that beat, and a lease for each partition."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

from headwater.backends.redis.client import Call, Redis, running, script
from headwater.backends.redis.keys import Keys
from headwater.backends.redis.notifications import Wakes
from headwater.backends.redis.store_identity import check_confirmed
from headwater.backends.redis.stream_codec import lease_text
from headwater.core.logging import Outage
from headwater.errors import BackendError
from headwater.ports import Lease

# A single beat may also fail because its own process was stopped, or too busy to hear the answer.
_BEATS_OF_A_CUT = 2


class _Member:
    """A worker of this process: what it holds, and whether the servers hear it."""

    def __init__(self) -> None:
        self.held: dict[int, Lease] = {}
        self.uncleared: set[int] = set()
        """Partitions that may be suspect for its sake, although it was cut off and lives."""
        self._heard_at = time.monotonic()
        self._unheard = 0

    @property
    def cut_off(self) -> int:
        """For how many milliseconds it could not show that it lives; 0 if it could."""
        if self._unheard < _BEATS_OF_A_CUT:
            return 0
        return round((time.monotonic() - self._heard_at) * 1000)

    def beat_failed(self) -> None:
        self._unheard += 1
        if self.cut_off:
            self.uncleared.update(self.held)

    def was_heard(self, cleared: Collection[int]) -> None:
        self._heard_at, self._unheard = time.monotonic(), 0
        self.uncleared.difference_update(cleared)


class RedisLeases:
    """Gives partitions to workers that beat, by the clock of the servers."""

    def __init__(self, redis: Redis, keys: Keys, wakes: Wakes, lease_ttl: float) -> None:
        self._redis = redis
        self._keys = keys
        self._wakes = wakes
        self._ttl = max(1, round(lease_ttl * 1000))
        # One server's silence must not keep the leases of the others from being prolonged.
        self._patience = lease_ttl / 4
        self._members: defaultdict[str, _Member] = defaultdict(_Member)
        self._retired: set[str] = set()
        self._outage = Outage("partitions")

    async def register(self, worker: str) -> None:
        self._members[worker] = _Member()
        self._wakes.join(worker)

    async def heartbeat(self, worker: str, leases: Sequence[Lease]) -> list[str]:
        member = self._members[worker]
        uncleared = sorted(member.uncleared)
        calls = [
            self._beating(worker, member.cut_off),
            *map(self._prolonging, leases),
            *(self._clearing(worker, partition) for partition in uncleared),
        ]
        try:
            living, *answers = await self._redis.calls_apart(calls, self._patience)
            if isinstance(living, BackendError):
                raise living
        except BackendError:
            member.beat_failed()
            raise
        for lease, good in zip(leases, answers, strict=False):
            if good == 0:
                self._wakes.look_again(lease.partition)  # the next read finds the lease void
        told = zip(uncleared, answers[len(leases) :], strict=True)
        member.was_heard([own for own, answer in told if not isinstance(answer, BackendError)])
        return sorted(name.decode() for name in living)

    def _beating(self, worker: str, cut_off: int) -> Call:
        own = "" if worker in self._retired else worker
        arguments = (own, self._ttl, self._keys.wake, cut_off)
        return running(script("heartbeat"), [self._keys.workers], *arguments)

    def _clearing(self, worker: str, partition: int) -> Call:
        return running(script("clear"), [self._keys.parts[partition].group], worker)

    def _prolonging(self, lease: Lease) -> Call:
        keys = self._keys.parts[lease.partition]
        arguments = (lease_text(lease), lease.owner, self._ttl)
        return running(script("prolong"), [keys.group, keys.lease], *arguments)

    async def claim(self, worker: str, partitions: Collection[int]) -> list[Lease]:
        await check_confirmed(self._redis, self._keys, self._patience)
        wanted = sorted(partitions)
        calls = [self._claiming(worker, partition) for partition in wanted]
        answers = await self._redis.calls_apart(calls, self._patience)
        self._tell_problems(wanted, answers)
        leases = [
            Lease(partition, worker, answer[0], suspect=bool(answer[1]))
            for partition, answer in zip(wanted, answers, strict=True)
            if isinstance(answer, list)
        ]
        for lease in leases:
            self._members[worker].held[lease.partition] = lease
            self._wakes.look_again(lease.partition)
        return leases

    def _tell_problems(self, partitions: Sequence[int], answers: Sequence[Any]) -> None:
        """Raises what keeps all partitions from being claimed; what keeps some is only told."""
        problems = [answer for answer in answers if isinstance(answer, BackendError)]
        if problems and len(problems) == len(answers):
            raise problems[0]
        for partition, answer in zip(partitions, answers, strict=True):
            if isinstance(answer, BackendError):
                self._outage.tell(
                    "error",
                    "a partition could not be claimed, and its events wait",
                    answer,
                    partition,
                    partition=partition,
                )
            else:
                self._outage.over(partition)

    def _claiming(self, worker: str, partition: int) -> Call:
        keys = self._keys.parts[partition]
        return running(
            script("claim"),
            [keys.group, keys.lease, keys.events],
            *(worker, self._ttl, self._keys.group),
        )

    async def release(self, leases: Sequence[Lease]) -> None:
        await self._give_back(leases, "done")
        for lease in leases:
            self._members[lease.owner].held.pop(lease.partition, None)

    async def retire(self, worker: str) -> None:
        self._retired.add(worker)
        await self._redis.call(
            running(script("retire"), [self._keys.workers], worker, self._keys.wake)
        )

    async def deregister(self, worker: str) -> None:
        self._wakes.leave(worker)
        member = self._members.pop(worker, _Member())
        await self.retire(worker)
        await self._give_back([*member.held.values()], "died")

    async def _give_back(self, leases: Sequence[Lease], how: str) -> None:
        await self._redis.calls([self._releasing(lease, how) for lease in leases])

    def _releasing(self, lease: Lease, how: str) -> Call:
        keys = self._keys.parts[lease.partition]
        arguments = (lease_text(lease), self._keys.wake, how)
        return running(script("release"), [keys.group, keys.lease], *arguments)
