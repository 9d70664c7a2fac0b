"""Opening the Redis side of the production environment."""

from __future__ import annotations

import re
from contextlib import AsyncExitStack

from headwater.backends.redis.bus import RedisBus
from headwater.backends.redis.cache import RedisCache
from headwater.backends.redis.client import Redis, asking, running, script
from headwater.backends.redis.connection import Address
from headwater.backends.redis.cross_shard_writes import Parcels
from headwater.backends.redis.dead_letters import RedisDeadLetters
from headwater.backends.redis.keys import Keys
from headwater.backends.redis.leases import RedisLeases
from headwater.backends.redis.notifications import Wakes
from headwater.backends.redis.online import RedisOnlineStore
from headwater.backends.redis.outbox import RedisOutbox
from headwater.backends.redis.prefetch import Ahead
from headwater.backends.redis.publishing import Appending
from headwater.backends.redis.store_identity import LOST, problem_of
from headwater.core.clock import Clock
from headwater.core.values import new_id
from headwater.errors import BackendError, ConfigError
from headwater.ports import Health
from headwater.settings.schema import RedisSettings, Settings

_FORMAT = 1


class RedisEnvironment:
    """Everything that lives in one Redis, and the end of it."""

    def __init__(self, redis: Redis, settings: Settings, clock: Clock) -> None:
        keys = Keys(settings.redis.prefix, settings.partitions, settings.worker.consumer_group)
        appending = Appending(keys, clock, settings.ingest.dedup_limit)
        self._settings = settings
        self.redis = redis
        self.keys = keys
        self._wakes = Wakes(redis, keys.wake)
        self.dead_letters = RedisDeadLetters(redis, keys, appending)
        self.online = RedisOnlineStore(redis, keys)
        self._parcels = Parcels(redis, keys, self.online, self._wakes)
        self._ahead = Ahead(redis, keys, self._wakes)
        self.bus = RedisBus(
            redis, keys, self._wakes, self._ahead, appending, self.dead_letters, self._parcels
        )
        self.leases = RedisLeases(redis, keys, self._wakes, settings.worker.lease_ttl)
        self.outbox = RedisOutbox(redis, keys, _name_of(settings.redis, clustered=redis.clustered))
        self.cache = RedisCache(redis, keys, clock)

    async def health(self) -> list[Health]:
        """Whether Redis answers, still has this store, and keeps what it acknowledges."""
        try:
            problem = problem_of(await self.outbox.standing())
        except BackendError as error:
            problem = str(error)
        if problem:
            return [Health("redis", ok=False, detail=problem)]
        return [Health("redis", ok=True, detail="; ".join(await self._weaknesses()))]

    async def _weaknesses(self) -> list[str]:
        """What may lose acknowledged events, as far as Redis says how it is set up."""
        names = ("appendonly", "appendfsync", "maxmemory-policy")
        try:
            known = await self.redis.call(asking(self.keys.meta, "CONFIG", "GET", *names))
        except BackendError:
            return []  # a managed Redis does not tell
        pairs = iter(part.decode() for part in known)
        setup = dict(zip(pairs, pairs, strict=True))
        weak = []
        if setup.get("appendonly") == "no":
            weak.append("appendonly is off: what is acknowledged is lost when Redis dies")
        elif setup.get("appendfsync") != "always":
            weak.append("appendfsync is not always: the last second is lost when the machine dies")
        if setup.get("maxmemory-policy", "noeviction") != "noeviction":
            weak.append("maxmemory-policy is not noeviction: Redis may throw events away")
        return weak

    async def check_not_lost(self) -> None:
        """Raises if this is not the store whose past Postgres holds; one that is new may be."""
        if (await self.outbox.standing()).state == "lost":
            raise BackendError(LOST)

    async def found_again(self) -> None:
        """Founds the store anew if it was lost while it was open."""
        await _found(self.redis, self._settings)

    async def close(self) -> None:
        await self._wakes.close()
        await self._ahead.close()
        await self._parcels.close()
        await self.redis.close()


async def open_redis(settings: Settings, clock: Clock) -> RedisEnvironment:
    """Connects, and founds the store where there is none yet."""
    _check_prefix(settings.redis.prefix)
    redis = Redis(settings.redis.url, settings.redis.timeout, settings.redis.connect_timeout)
    async with AsyncExitStack() as undo:
        undo.push_async_callback(redis.close)
        await redis.open()
        await _found(redis, settings)
        await _knock(redis, settings)
        undo.pop_all()
    return RedisEnvironment(redis, settings, clock)


async def _found(redis: Redis, settings: Settings) -> None:
    """Writes down what is fixed when a store is made, or checks it where it was."""
    known = await redis.call(
        running(
            script("create_store"),
            [f"{settings.redis.prefix}:meta"],
            *(_FORMAT, settings.partitions, new_id()),
        )
    )
    version, partitions = known
    if int(version) > _FORMAT:
        raise BackendError(
            f"the store in Redis was made by a newer version of Headwater (format {int(version)}, "
            f"this one knows {_FORMAT}); upgrade Headwater here"
        )
    if int(partitions) != settings.partitions:
        raise ConfigError(
            f"the store in Redis was made with {int(partitions)} partitions, the settings say "
            f"{settings.partitions}; the number is fixed when a store is made: set "
            f"HEADWATER_PARTITIONS={int(partitions)}, or choose another redis.prefix"
        )


async def _knock(redis: Redis, settings: Settings) -> None:
    """Sees that messages may be sent: a script finds out only after it has written events."""
    channel = f"{settings.redis.prefix}:wake"
    await redis.call(asking(channel, "PUBLISH", channel, "workers"))


def _name_of(settings: RedisSettings, *, clustered: bool) -> str:
    if clustered:
        return f"{settings.prefix} in a cluster"  # whose nodes come and go
    address = Address.parse(settings.url)
    return f"{settings.prefix} at {address}/{address.database}"


def _check_prefix(prefix: str) -> None:
    if not re.fullmatch(r"[\w.:-]+", prefix):
        raise ConfigError(
            f"redis.prefix {prefix!r} may have letters, digits, '_', '.', ':' and '-' only"
        )
