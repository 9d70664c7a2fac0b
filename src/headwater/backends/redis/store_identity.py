"""Whether Redis has the store whose past Postgres holds.

A store that is founded is new until Postgres has said that it knows no other one; a Redis that lost
its data has a new one, too. No worker is given a partition of such a store: on an empty one it
would take every entity for a new one, and what it computed would be the newest value there is.
"""

from __future__ import annotations

from headwater.backends.redis.client import Call, Redis, asking, running, script
from headwater.backends.redis.keys import Keys
from headwater.errors import BackendError
from headwater.ports import IdentityChange, StoreIdentity

LOST = (
    "Postgres holds history of a store that Redis does not have: it lost its data, or redis.url or "
    "redis.prefix names another; put that right, or run `headwater rebuild`"
)
_NEW = (
    "this store is new in Redis, and Postgres has not yet said whether it knows another; events "
    "wait until it can be reached"
)
_PROBLEMS = {"known": None, "new": _NEW, "lost": LOST}


async def standing(redis: Redis, keys: Keys) -> StoreIdentity:
    """How it is at present."""
    return _read(await redis.call(_question(keys)), keys)


def problem_of(standing: StoreIdentity) -> str | None:
    """What keeps workers from it, and what to do about it."""
    return _PROBLEMS[standing.state]


async def check_not_lost(redis: Redis, keys: Keys, patience: float) -> None:
    """Raises what is wrong and what to do about it, if it is so.

    In a cluster, a server that does not answer for so long keeps those of the others from nothing.
    """
    (answer,) = await redis.calls_apart([_question(keys)], patience)
    if not isinstance(answer, BackendError) and (problem := problem_of(_read(answer, keys))):
        raise BackendError(problem)


async def note(redis: Redis, keys: Keys, store_id: str, past_id: str, news: IdentityChange) -> bool:
    """Takes note of news about a store; says whether it is so: not of one that is gone."""
    noted = running(script("set_identity"), [keys.meta], store_id, past_id, news)
    return bool(await redis.call(noted))


def _question(keys: Keys) -> Call:
    return asking(keys.meta, "HMGET", keys.meta, "store", "past", "lost", "partitions")


def _read(answer: list[bytes | None], keys: Keys) -> StoreIdentity:
    store_id, past_id, lost, partitions = (None if own is None else own.decode() for own in answer)
    if store_id is None:
        return StoreIdentity(None, None, "lost")
    if partitions != str(keys.partitions):
        raise BackendError(
            f"the store in Redis was made anew with {partitions} partitions while this process "
            f"had it open with {keys.partitions}; restart it with HEADWATER_PARTITIONS={partitions}"
        )
    if lost is None:
        return StoreIdentity(store_id, past_id, "known")
    return StoreIdentity(store_id, past_id, "new" if lost == "new" else "lost")
