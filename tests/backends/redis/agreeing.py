"""A store in Redis whose past says that it is its own, without any Postgres."""

from __future__ import annotations

from headwater.backends.redis.environment import RedisEnvironment


async def agree(opened: RedisEnvironment) -> None:
    """Lets workers have partitions of a store that was opened alone."""
    store_id = (await opened.outbox.standing()).store_id
    assert store_id is not None
    assert await opened.outbox.note(store_id, "a past", "agreed")
