"""A server that stops answering: callers share one attempt to connect, and none waits in line."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace
from redis.crc import key_slot

from headwater.backends.redis import client as client_module
from headwater.backends.redis.address import Address
from headwater.backends.redis.client import Redis, command
from headwater.backends.redis.connection import RedisConnection, open_connection
from headwater.errors import BackendUnavailableError, ClosedError
from tests.backends.redis.test_connection import pretending
from tests.cluster import MASTERS, SLOTS, cluster_machines
from tests.engine.support import until
from tests.servers import Machine, valkey_machine

CALLERS = 100
PATIENT, IMPATIENT = 60.0, 2.0
# One after another, the callers would need CALLERS * IMPATIENT, which is several times as long.
LONGEST = 2 * IMPATIENT + PATIENT
NODE_TIMEOUT_MS = "3000"


class Attempts:
    """Counts attempts to connect, and how many of one address run at once."""

    def __init__(self) -> None:
        self.total = 0
        self.most_at_once = 0
        self._running: Counter[Address] = Counter()

    async def open_connection(self, address: Address, *options: Any) -> RedisConnection:
        self.total += 1
        self._running[address] += 1
        self.most_at_once = max(self.most_at_once, *self._running.values())
        try:
            return await open_connection(address, *options)
        finally:
            self._running[address] -= 1


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Attempts]:
    counted = Attempts()
    monkeypatch.setattr(client_module, "open_connection", counted.open_connection)
    yield counted
    assert counted.most_at_once == 1


@asynccontextmanager
async def opened(port: int) -> AsyncIterator[Redis]:
    redis = Redis(f"redis://127.0.0.1:{port}", timeout=PATIENT, connect_timeout=PATIENT)
    try:
        await redis.open()
        yield redis
    finally:
        await redis.close()


def wait_at_most(redis: Redis, seconds: float) -> None:
    """Change the timeout of a client and of its connections."""
    redis.timeout = seconds
    redis._settings = replace(redis._settings, timeout=seconds, connect_timeout=seconds)  # noqa: SLF001
    for connection in redis.connections.values():
        connection._timeout = seconds  # noqa: SLF001
        # Its timer was started with the timeout before, and is started again by the next call.
        if connection._watch is not None:  # noqa: SLF001
            connection._watch.cancel()  # noqa: SLF001
            connection._watch = None  # noqa: SLF001


async def call(redis: Redis, key: str = "k") -> bool:
    """Return whether the server answered; fail if that took too long."""
    began = time.monotonic()
    try:
        await redis.call(command(key, "INCR", key))
    except BackendUnavailableError:
        return False
    else:
        return True
    finally:
        assert time.monotonic() - began < LONGEST


async def calls(redis: Redis) -> set[bool]:
    return {*await asyncio.gather(*(call(redis) for _ in range(CALLERS)))}


async def test_callers_of_a_silent_server_share_one_attempt_to_connect(attempts: Attempts) -> None:
    with valkey_machine() as machine:
        async with opened(machine.port) as redis:
            machine.freeze()
            wait_at_most(redis, IMPATIENT)
            assert await calls(redis) == {False}  # their commands had no reply
            before = attempts.total
            assert await calls(redis) == {False}
            assert attempts.total == before + 1
            machine.thaw()
            wait_at_most(redis, PATIENT)
            assert await calls(redis) == {True}
            assert attempts.total == before + 2


async def test_a_caller_that_gives_up_does_not_end_the_attempt_of_the_others(
    attempts: Attempts,
) -> None:
    with valkey_machine() as machine:
        async with opened(machine.port) as redis:
            (connection,) = redis.connections.values()
            connection.close()
            first, second = (asyncio.create_task(call(redis)) for _ in range(2))
            await until(lambda: attempts.total == 2)
            first.cancel()
            assert await second
            assert attempts.total == 2


async def test_a_store_that_is_closed_while_it_connects_says_so(attempts: Attempts) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with pretending(handle) as port:
        redis = Redis(f"redis://127.0.0.1:{port}", timeout=60, connect_timeout=60)
        opening = asyncio.create_task(redis.open())
        await until(lambda: attempts.total == 1)
        await redis.close()
        with pytest.raises(ClosedError):
            await opening


async def test_connecting_takes_no_longer_than_a_command(attempts: Attempts) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with pretending(handle) as port:
        redis = Redis(f"redis://127.0.0.1:{port}", timeout=0.1, connect_timeout=60)
        with pytest.raises(BackendUnavailableError, match=r"not be reached within 0\.1 s"):
            await redis.open()


# Keys of the first master, which has the lowest third of the slots.
KEYS = [key for key in map(str, range(CALLERS)) if key_slot(key.encode()) < SLOTS // MASTERS - 1]


@pytest.fixture
def machines() -> Iterator[list[Machine]]:
    options = ("--cluster-node-timeout", NODE_TIMEOUT_MS, "--cluster-replica-validity-factor", "0")
    with cluster_machines(*options, replicas=1) as machines:
        yield machines


@pytest.mark.cluster
async def test_calls_reach_the_replica_that_took_over_from_a_silent_master(
    attempts: Attempts, machines: list[Machine]
) -> None:
    frozen, _, _, replica = machines

    async def until_answered(redis: Redis, key: str) -> None:
        while not await call(redis, key):
            pass

    async with opened(frozen.port) as idle:
        assert await call(idle, KEYS[0])
        async with opened(frozen.port) as busy:
            assert await call(busy, KEYS[0])
            (master,) = (a for a in busy.connections if a.port == frozen.port)
            frozen.freeze()
            wait_at_most(busy, IMPATIENT)
            keys = (KEYS * CALLERS)[:CALLERS]
            async with asyncio.timeout(90):
                await asyncio.gather(*(until_answered(busy, key) for key in keys))
            assert replica.port in {address.port for address in busy.connections}
            assert master not in busy.connections

        # A command without a reply makes the map of slots stale, so the next is sent elsewhere.
        wait_at_most(idle, IMPATIENT)
        assert not await call(idle, KEYS[0])
        wait_at_most(idle, PATIENT)
        assert await call(idle, KEYS[0])
