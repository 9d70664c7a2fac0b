"""Whether Redis still has the store whose past Postgres holds."""

from __future__ import annotations

from headwater.backends.redis.client import Redis, asking
from headwater.backends.redis.keys import Keys
from headwater.errors import BackendError

LOST = (
    "Postgres holds history of a store that Redis does not have: it lost its data, or redis.url or "
    "redis.prefix names another; put that right, or run `headwater rebuild`"
)


async def is_lost(redis: Redis, keys: Keys) -> bool:
    """Says whether it is gone, or was noted to be another one."""
    store_id, lost = await redis.call(asking(keys.meta, "HMGET", keys.meta, "store", "lost"))
    return store_id is None or lost is not None


async def refuse_lost(redis: Redis, keys: Keys) -> None:
    """Raises what is wrong and what to do about it, if it is so."""
    if await is_lost(redis, keys):
        raise BackendError(LOST)
