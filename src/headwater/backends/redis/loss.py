"""Whether Redis has the store whose past Postgres holds.

A store that is founded is new until Postgres has said that it knows no other one; a Redis that lost
its data has a new one, too. No worker is given a partition of such a store: on an empty one it
would take every entity for a new one, and what it computed would be the newest value there is.
"""

from __future__ import annotations

from typing import NamedTuple

from headwater.backends.redis.client import Call, Redis, asking
from headwater.backends.redis.keys import Keys
from headwater.errors import BackendError

LOST = (
    "Postgres holds history of a store that Redis does not have: it lost its data, or redis.url or "
    "redis.prefix names another; put that right, or run `headwater rebuild`"
)
_NEW = (
    "this store is new in Redis, and Postgres has not yet said whether it knows another; events "
    "wait until it can be reached"
)
_OTHER = b"other"


class Standing(NamedTuple):
    """Which store is there, and what is wrong with it if it is not the one of Postgres."""

    store_id: str | None
    problem: str | None


async def standing(redis: Redis, keys: Keys) -> Standing:
    """How it is at present."""
    answer = await redis.call(_question(keys))
    return Standing(None if answer[0] is None else answer[0].decode(), _told(answer))


async def refuse_lost(redis: Redis, keys: Keys, patience: float) -> None:
    """Raises what is wrong and what to do about it, if it is so.

    In a cluster, a server that does not answer for so long keeps those of the others from nothing.
    """
    (answer,) = await redis.calls_apart([_question(keys)], patience)
    if not isinstance(answer, BackendError) and (problem := _told(answer)):
        raise BackendError(problem)


def _question(keys: Keys) -> Call:
    return asking(keys.meta, "HMGET", keys.meta, "store", "lost")


def _told(answer: list[bytes | None]) -> str | None:
    store_id, lost = answer
    if store_id is None or lost == _OTHER:
        return LOST
    return None if lost is None else _NEW


async def note_loss(redis: Redis, keys: Keys) -> bool:
    """Takes note that a store that is new is another than that of Postgres; says if it is new."""
    (lost,) = await redis.call(asking(keys.meta, "HMGET", keys.meta, "lost"))
    if lost is not None:
        await redis.call(asking(keys.meta, "HSET", keys.meta, "lost", _OTHER))
    return lost is not None


async def note_agreement(redis: Redis, keys: Keys) -> None:
    """Takes note that it is the store of Postgres."""
    await redis.call(asking(keys.meta, "HDEL", keys.meta, "lost"))
