"""Whether Redis still has the store whose past Postgres holds."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.backends.redis.client import Call, Redis, asking
from headwater.backends.redis.keys import Keys
from headwater.errors import BackendError

LOST = (
    "Postgres holds history of a store that Redis does not have: it lost its data, or redis.url or "
    "redis.prefix names another; put that right, or run `headwater rebuild`"
)


async def is_lost(redis: Redis, keys: Keys) -> bool:
    """Says whether it is gone, or was noted to be another one."""
    return _says_so(await redis.call(_question(keys)))


async def refuse_lost(redis: Redis, keys: Keys, patience: float) -> None:
    """Raises what is wrong and what to do about it, if it is so.

    In a cluster, a server that does not answer for so long keeps those of the others from nothing.
    """
    (answer,) = await redis.calls_apart([_question(keys)], patience)
    if not isinstance(answer, BackendError) and _says_so(answer):
        raise BackendError(LOST)


def _question(keys: Keys) -> Call:
    return asking(keys.meta, "HMGET", keys.meta, "store", "lost")


def _says_so(answer: Sequence[bytes | None]) -> bool:
    store_id, lost = answer
    return store_id is None or lost is not None
