"""The id of the store in Redis, and whether Postgres has confirmed that it holds its history.

A new store is unconfirmed, and so is the store in a Redis that lost its data. Workers are given no
partition of it: on an empty store they would take every entity for a new one, and the values that
they computed would replace the ones in history.
"""

from __future__ import annotations

from headwater.backends.redis.client import Call, Redis, command, script_call
from headwater.backends.redis.keys import Keys
from headwater.errors import BackendError, ConfigError, StoreLostError
from headwater.model.values import new_id
from headwater.ports import StoreIdentity
from headwater.settings.schema import Settings

_FORMAT = 2
_OLDEST_FORMAT = 1
"""Its positions of the outbox have no cursors; they get them with the next rows that are taken."""
_MOST_SHOWN = 8
_REMEDY = (
    "if Redis lost its data, run `headwater rebuild --adopt`; if redis.url, redis.prefix, "
    "postgres.url or postgres.schema is wrong, correct it"
)


def new_store_id(prefix: str) -> str:
    """Return a new id that shows the prefix of the store, to be recognized in messages."""
    return f"{prefix}-{new_id()}"


async def create_store(redis: Redis, settings: Settings) -> None:
    """Create the store if there is none, and check the settings that are fixed at creation."""
    prefix = settings.redis.prefix
    identity = await redis.call(
        script_call(
            "create_store",
            [f"{prefix}:meta"],
            *(_FORMAT, settings.partitions, new_store_id(prefix), _OLDEST_FORMAT),
        )
    )
    version, partitions = (int(number or 0) for number in identity)
    _check_format(version)
    if partitions != settings.partitions:
        raise ConfigError(
            f"the store in Redis was made with {partitions} partitions, the settings say "
            f"{settings.partitions}; the number is fixed when a store is made: set "
            f"HEADWATER_PARTITIONS={partitions}, or choose another redis.prefix"
        )


def _check_format(version: int) -> None:
    """Raise BackendError if the store is of another format than this version of Headwater uses."""
    if version > _FORMAT:
        raise BackendError(
            f"the store in Redis was made by a newer version of Headwater (format {version}, "
            f"this one knows {_FORMAT}); upgrade Headwater here; nothing was changed"
        )
    if version < _FORMAT:
        raise BackendError(
            f"the store in Redis was made by an older version of Headwater (format {version}, "
            f"this one needs {_FORMAT}); run that version here, or choose another redis.prefix and "
            "run `headwater rebuild --adopt`, which restores the values from Postgres; nothing was "
            "changed"
        )


async def read_identity(redis: Redis, keys: Keys) -> StoreIdentity:
    """Return which store is in Redis at present."""
    return _parse(await redis.call(reading(keys)), keys)


async def read_loss(redis: Redis, keys: Keys, patience: float) -> StoreLostError | None:
    """Return why values must not be read and workers be given no partitions, if that is known.

    In a cluster, the other servers are not blocked by one that does not answer in time.
    """
    (answer,) = await redis.calls_apart([reading(keys)], patience)
    return None if isinstance(answer, BackendError) else loss_in(answer, keys)


def loss_in(answer: list[bytes | None], keys: Keys) -> StoreLostError | None:
    """Return the loss in the answer to ``reading``."""
    return loss_of(_parse(answer, keys))


def loss_of(identity: StoreIdentity) -> StoreLostError | None:
    """Return why the store, or some partitions of it, cannot be used, and the remedy."""
    if identity.store_id is None:
        problem = "the store is missing from Redis, so reads are refused and workers wait"
    elif not identity.is_confirmed:
        problem = (
            f"Postgres has not confirmed that it holds the history of the store in Redis "
            f"({identity.store_id}), so reads are refused, workers wait and events are kept; if "
            "Postgres cannot be reached, this ends when it can be"
        )
    elif identity.behind:
        numbers = ", ".join(map(str, sorted(identity.behind)))
        many = len(identity.behind) > _MOST_SHOWN
        shown = f"{len(identity.behind)} partitions" if many else f"partition {numbers}"
        problem = (
            f"Redis was restored from an older copy: in {shown} Postgres has values, "
            "events or versions of features that Redis lacks, so reads of their entities are "
            "refused, their workers wait and new events are kept; `headwater rebuild --adopt` "
            "restores them from Postgres"
        )
        return StoreLostError("Redis", problem, identity.behind)
    else:
        return None
    return StoreLostError("Redis", f"{problem}; {_REMEDY}")


def reading(keys: Keys) -> Call:
    """Return the call that asks which store is in Redis, and what it lost."""
    return command(
        keys.meta, "HMGET", keys.meta, "store", "confirmed", "partitions", "behind", "format"
    )


def _parse(answer: list[bytes | None], keys: Keys) -> StoreIdentity:
    store_id, confirmed, partitions, behind, version = answer
    if store_id is None or partitions is None:
        return StoreIdentity(None)
    # Another process may have changed the store while this one had it open.
    _check_format(int(version or 0))
    if int(partitions) != keys.partitions:
        raise BackendError(
            f"the store in Redis was created again with {int(partitions)} partitions while this "
            f"process had it open with {keys.partitions}; restart it with "
            f"HEADWATER_PARTITIONS={int(partitions)}"
        )
    return StoreIdentity(
        store_id.decode(),
        is_confirmed=confirmed is not None,
        behind=frozenset(map(int, (behind or b"").split())),
    )
