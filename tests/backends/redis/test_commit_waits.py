"""A wait for a commit ends although messages were lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from headwater.backends.redis.client import Redis, command
from headwater.backends.redis.commit_waits import CommitWaits
from headwater.backends.redis.keys import Keys
from headwater.ports import Awaited
from tests.engine.support import PATIENCE_SECONDS, until
from tests.servers import valkey_node

GROUP = "workers"


@pytest.fixture
async def redis() -> AsyncIterator[Redis]:
    """A client of a separate server, whose subscriptions a test may end."""
    with valkey_node() as port:
        client = Redis(f"redis://127.0.0.1:{port}/0", timeout=60, connect_timeout=60)
        await client.open()
        yield client
        await client.close()


async def test_a_commit_while_the_subscription_is_lost_ends_the_wait(redis: Redis) -> None:
    keys = Keys("test", 1, GROUP)
    waits, part = CommitWaits(redis, keys), keys.parts[0]
    position = (await redis.call(command(part.events, "XADD", part.events, "*", "t", "e"))).decode()
    waiting = asyncio.create_task(waits.handled(GROUP, [Awaited("u1", position)], wait=True))

    async def is_marked() -> bool:
        return await redis.call(command(part.group, "HGET", part.group, "waiting")) is not None

    async def is_subscribed() -> bool:
        answer = await redis.call(command("k", "PUBSUB", "NUMSUB", keys.commits))
        return bool(answer[1])

    await until(is_marked)
    await until(is_subscribed)
    # As a commit does, whose message reaches no one.
    await redis.call(command("k", "CLIENT", "KILL", "TYPE", "pubsub"))
    await redis.call(command(part.group, "HDEL", part.group, "waiting"))
    await redis.call(command(part.group, "HSET", part.group, "cursor", position))
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await waiting == [frozenset()]
    await waits.close()
