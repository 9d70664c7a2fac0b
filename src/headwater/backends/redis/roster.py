"""Who works here: a sorted set of workers that beat, and a lease for each partition."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from headwater.backends.redis.client import Call, Redis, running, script
from headwater.backends.redis.entries import lease_text
from headwater.backends.redis.keys import Keys
from headwater.backends.redis.loss import refuse_lost
from headwater.backends.redis.wakes import Wakes
from headwater.errors import BackendError
from headwater.ports import Lease


class RedisRoster:
    """Gives partitions to workers that beat, by the clock of the servers."""

    def __init__(self, redis: Redis, keys: Keys, wakes: Wakes, lease_ttl: float) -> None:
        self._redis = redis
        self._keys = keys
        self._wakes = wakes
        self._ttl = max(1, round(lease_ttl * 1000))
        # One server's silence must not keep the leases of the others from being prolonged.
        self._patience = lease_ttl / 4
        self._held: dict[str, dict[int, Lease]] = {}
        self._retired: set[str] = set()

    async def join(self, worker: str) -> None:
        self._held[worker] = {}
        self._wakes.join(worker)

    async def beat(self, worker: str, leases: Sequence[Lease]) -> list[str]:
        own = "" if worker in self._retired else worker
        beat = running(script("beat"), [self._keys.workers], own, self._ttl, self._keys.wake)
        calls = [beat, *map(self._prolonging, leases)]
        living, *held = await self._redis.calls_apart(calls, self._patience)
        if isinstance(living, BackendError):
            raise living
        for lease, good in zip(leases, held, strict=True):
            if good == 0:
                self._wakes.look_again(lease.partition)  # the next read finds the lease void
        return sorted(name.decode() for name in living)

    def _prolonging(self, lease: Lease) -> Call:
        keys = self._keys.parts[lease.partition]
        arguments = (lease_text(lease), lease.owner, self._ttl)
        return running(script("prolong"), [keys.group, keys.lease], *arguments)

    async def claim(self, worker: str, partitions: Collection[int]) -> list[Lease]:
        await refuse_lost(self._redis, self._keys, self._patience)
        wanted = sorted(partitions)
        calls = [self._claiming(worker, partition) for partition in wanted]
        answers = await self._redis.calls_apart(calls, self._patience)
        problems = [answer for answer in answers if isinstance(answer, BackendError)]
        if problems and len(problems) == len(answers):
            raise problems[0]
        leases = [
            Lease(partition, worker, answer[0], suspect=bool(answer[1]))
            for partition, answer in zip(wanted, answers, strict=True)
            if isinstance(answer, list)
        ]
        for lease in leases:
            self._held.setdefault(worker, {})[lease.partition] = lease
            self._wakes.look_again(lease.partition)
        return leases

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
            self._held.get(lease.owner, {}).pop(lease.partition, None)

    async def retire(self, worker: str) -> None:
        self._retired.add(worker)
        await self._redis.call(
            running(script("retire"), [self._keys.workers], worker, self._keys.wake)
        )

    async def leave(self, worker: str) -> None:
        self._wakes.leave(worker)
        held = self._held.pop(worker, {})
        await self.retire(worker)
        await self._give_back([*held.values()], "died")

    async def _give_back(self, leases: Sequence[Lease], how: str) -> None:
        await self._redis.calls([self._releasing(lease, how) for lease in leases])

    def _releasing(self, lease: Lease, how: str) -> Call:
        keys = self._keys.parts[lease.partition]
        arguments = (lease_text(lease), self._keys.wake, how)
        return running(script("release"), [keys.group, keys.lease], *arguments)
