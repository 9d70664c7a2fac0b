"""Confirming a store in Redis without a Postgres."""

from __future__ import annotations

from headwater.backends.redis.environment import RedisEnvironment


async def confirm(opened: RedisEnvironment) -> None:
    """Let workers have partitions of a store that was opened without Postgres."""
    store_id = (await opened.outbox.identity()).store_id
    assert store_id is not None
    assert await opened.outbox.confirm(store_id, store_id)
