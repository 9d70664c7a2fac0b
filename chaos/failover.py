"""Failover of a master to its replica, in a cluster or by Sentinels, without losing a write."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import redis.asyncio
from redis.exceptions import RedisError

from chaos.waiting import until
from tests.proxy import Proxy
from tests.sentinels import NAME
from tests.servers import Machine

_DONE_WITHIN_SECONDS = 60.0
_PAUSE_MILLISECONDS = 60_000
# Masters vote for the replica of one master at most once in two node timeouts.
_VOTE_SECONDS = 6.0


class FailoverError(Exception):
    """A failover that did not happen."""


class Failover:
    """Kills or exchanges the master that has a replica.

    A cluster replicates asynchronously: a master that dies may take acknowledged writes with it. To
    tell such a loss from one of Headwater's, writes are held until the replica has them all.
    """

    def __init__(self, machines: Sequence[Machine]) -> None:
        self.master, *rest = machines
        self._replica = rest[-1] if rest else self.master

    async def kill_master(self, seconds: float) -> None:
        """Kill the master, promote its replica, and start the killed one as the new replica."""
        await self._hold_writes()
        await asyncio.to_thread(self.master.kill)
        await self._promote("FORCE")
        await asyncio.sleep(seconds)
        await asyncio.to_thread(self._replica.start)
        await _within_limit(self._is_replicating, "the killed master did not become a replica")

    async def exchange(self) -> None:
        """Promote the replica with the consent of the master, which becomes its replica."""
        await self._promote()
        await _within_limit(self._is_replicating, "the old master did not become a replica")

    async def _hold_writes(self) -> None:
        await ask(self.master, "CLIENT PAUSE", _PAUSE_MILLISECONDS, "WRITE")
        await _within_limit(self._has_all_writes, "the replica did not get all writes")

    async def _promote(self, *how: str) -> None:
        """Promote the replica; ask again if the other masters have not voted for it in time."""

        async def is_master() -> bool:
            role: bytes = (await ask(self._replica, "ROLE"))[0]
            return role == b"master"

        async def is_promoted() -> bool:
            await self._ask_for_promotion(*how)
            return await until(is_master, _VOTE_SECONDS)

        await _within_limit(is_promoted, "the replica was not promoted")
        self.master, self._replica = self._replica, self.master

    async def _ask_for_promotion(self, *how: str) -> None:
        await ask(self._replica, "CLUSTER FAILOVER", *how)

    async def _has_all_writes(self) -> bool:
        master, replica = [
            await ask(machine, "INFO", "replication") for machine in (self.master, self._replica)
        ]
        return bool(master["master_repl_offset"] == replica["slave_repl_offset"])

    async def _is_replicating(self) -> bool:
        role = await ask(self._replica, "ROLE")
        return bool(role[0] == b"slave" and role[3] == b"connected")


class SentinelFailover(Failover):
    """Kills or exchanges the master that Sentinels watch."""

    def __init__(
        self, machines: Sequence[Machine], lines: Sequence[Proxy], sentinels: Sequence[Machine]
    ) -> None:
        super().__init__(machines)
        self._lines = lines
        self._sentinels = sentinels

    async def exchange(self) -> None:
        # Sentinels do not ask the old master, which they make a replica some seconds later.
        await self._hold_writes()
        await super().exchange()
        await ask(self._replica, "CONFIG SET", "min-replicas-to-write", 0)

    async def _hold_writes(self) -> None:
        # A pause would hold what Sentinels send, too.
        await ask(self.master, "CONFIG SET", "min-replicas-to-write", 9)
        await _within_limit(self._has_all_writes, "the replica did not get all writes")

    async def _ask_for_promotion(self, *how: str) -> None:
        await ask(self._sentinels[0], "SENTINEL FAILOVER", NAME)

    async def _promote(self, *how: str) -> None:
        await super()._promote(*how)
        await _within_limit(self._is_agreed, "the Sentinels did not agree on the new master")

    async def _is_agreed(self) -> bool:
        places = [await ask(s, "SENTINEL GET-MASTER-ADDR-BY-NAME", NAME) for s in self._sentinels]
        (line,) = (line for line in self._lines if line.target == self.master.port)
        return all(int(port) == line.port for _, port in places)


async def _within_limit(condition: Callable[[], Awaitable[bool]], problem: str) -> None:
    """Wait for the condition; raise FailoverError after the time limit."""

    async def holds() -> bool:
        try:
            return await condition()
        except (RedisError, OSError):
            return False

    if not await until(holds, _DONE_WITHIN_SECONDS):
        raise FailoverError(problem)


async def ask(machine: Machine, *words: object) -> Any:
    async with redis.asyncio.Redis(port=machine.port) as client:
        return await client.execute_command(*words)  # type: ignore[no-untyped-call]
