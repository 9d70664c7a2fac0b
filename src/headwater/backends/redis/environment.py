"""Opening the Redis side of the production environment."""

from __future__ import annotations

import re
from contextlib import AsyncExitStack

from headwater.backends.redis.bus import RedisBus
from headwater.backends.redis.cache import RedisCache
from headwater.backends.redis.catalog import RedisCatalog
from headwater.backends.redis.client import Redis, command
from headwater.backends.redis.dead_letters import RedisDeadLetters
from headwater.backends.redis.erasures import RedisErasures
from headwater.backends.redis.feed import RedisFeed
from headwater.backends.redis.keys import Keys
from headwater.backends.redis.leases import RedisGroups, RedisLeases
from headwater.backends.redis.notifications import Notifications
from headwater.backends.redis.online import RedisOnlineStore
from headwater.backends.redis.outbox import RedisOutbox
from headwater.backends.redis.rewinding import Rewinder
from headwater.backends.redis.store_identity import create_store, loss_of, read_loss
from headwater.backends.redis.streams import StreamPublisher
from headwater.core.clock import Clock
from headwater.errors import BackendError, ConfigError, StoreLostError
from headwater.model.health import Health
from headwater.settings.schema import Settings

_PROBE_TTL = 60
_PROBE_SECONDS = 0.5


class RedisEnvironment:
    """The backends that store their data in one Redis."""

    def __init__(self, redis: Redis, settings: Settings, clock: Clock) -> None:
        keys = Keys(settings.redis.prefix, settings.partitions, settings.worker.consumer_group)
        publisher = StreamPublisher(keys, clock, settings.ingest.dedup_limit)
        self._settings = settings
        self.redis = redis
        self.keys = keys
        self._notifications = Notifications(redis, keys.wake)
        self.dead_letters = RedisDeadLetters(redis, keys, publisher)
        self.erasures = RedisErasures(redis, keys)
        self.online = RedisOnlineStore(redis, keys, self.erasures)
        self.bus = RedisBus(
            *(redis, keys, self._notifications, publisher),
            *(self.dead_letters, self.online, self.erasures),
        )
        self.feed = RedisFeed(
            *(redis, keys, clock, self.erasures, self.bus.commits),
            dedup_limit=settings.ingest.dedup_limit,
            max_waiting=settings.bus.max_waiting,
        )
        self.leases = RedisLeases(
            redis, keys, self._notifications, self.online, settings.worker.lease_ttl
        )
        self.groups = RedisGroups(redis, keys, settings.worker.lease_ttl)
        rewinder = Rewinder(redis, keys, self.online, publisher, settings.ingest.dedup_window)
        self.outbox = RedisOutbox(redis, keys, settings.redis.prefix, rewinder)
        self.cache = RedisCache(redis, keys, clock)
        self.catalog = RedisCatalog(redis, keys)

    async def health(self) -> Health:
        """Return whether Redis can be written, has a confirmed store, and keeps its events.

        A cluster of which only some servers fail serves the entities of the others.
        """
        try:
            loss: BackendError | None = loss_of(await self.outbox.identity())
            failures = [] if loss else await self._refused_writes()
        except BackendError as error:
            loss, failures = error, []
        if loss:
            return Health("redis", ok=False, detail=str(loss), needed=self._is_needed(loss))
        if failures:
            needed = len(failures) == len(self._probe_keys())
            return Health("redis", ok=False, detail=str(failures[0]), needed=needed)
        return Health("redis", ok=True, detail="; ".join(await self._weaknesses()))

    def _is_needed(self, problem: BackendError) -> bool:
        """Return whether no entity can be served: in a cluster, one server may be an older copy."""
        is_partial = isinstance(problem, StoreLostError) and problem.partitions is not None
        return not (is_partial and self.redis.clustered)

    def _probe_keys(self) -> list[str]:
        """Return keys that are on all servers."""
        parts = self.keys.parts if self.redis.clustered else self.keys.parts[:1]
        return [part.probe for part in parts]

    async def _refused_writes(self) -> list[BackendError]:
        """Write to each server, and return the errors of servers that refuse."""
        calls = [command(key, "SET", key, "", "EX", _PROBE_TTL) for key in self._probe_keys()]
        answers = await self.redis.calls_apart(calls, _PROBE_SECONDS)
        return [answer for answer in answers if isinstance(answer, BackendError)]

    async def _weaknesses(self) -> list[str]:
        """Return the settings of Redis that can lose acknowledged events."""
        names = ("appendonly", "appendfsync", "maxmemory-policy")
        try:
            reply = await self.redis.call(command(self.keys.meta, "CONFIG", "GET", *names))
        except BackendError:
            return []  # a managed Redis may not allow CONFIG
        pairs = iter(part.decode() for part in reply)
        config = dict(zip(pairs, pairs, strict=True))
        weaknesses = []
        if config.get("appendonly") == "no":
            weaknesses.append("appendonly is off: acknowledged events are lost when Redis dies")
        elif config.get("appendfsync") != "always":
            weaknesses.append(
                "appendfsync is not always: the last second is lost when the machine dies"
            )
        if config.get("maxmemory-policy", "noeviction") != "noeviction":
            weaknesses.append("maxmemory-policy is not noeviction: Redis may evict events")
        return weaknesses

    async def check_values(self) -> None:
        """Raise StoreLostError if the store is missing or unconfirmed, or partitions are behind."""
        if (loss := await read_loss(self.redis, self.keys, _PROBE_SECONDS)) is not None:
            raise loss

    async def create_store(self) -> None:
        """Create the store again if Redis lost it while it was open."""
        await create_store(self.redis, self._settings)

    async def close(self) -> None:
        await self._notifications.close()
        await self.bus.close()
        await self.redis.close()


async def open_redis(settings: Settings, clock: Clock) -> RedisEnvironment:
    """Connect, and create the store if there is none."""
    _check_name("redis.prefix", settings.redis.prefix)
    _check_name("worker.consumer_group", settings.worker.consumer_group)
    redis = Redis.of(settings.redis)
    async with AsyncExitStack() as undo:
        undo.push_async_callback(redis.close)
        await redis.open()
        await create_store(redis, settings)
        # A script would fail for want of the right to PUBLISH only after it has written events.
        channel = f"{settings.redis.prefix}:wake"
        await redis.call(command(channel, "PUBLISH", channel, "workers"))
        undo.pop_all()
    return RedisEnvironment(redis, settings, clock)


def _check_name(setting: str, name: str) -> None:
    """Check a part of the names of keys; braces would choose the slot of a key."""
    if not re.fullmatch(r"[\w.:-]+", name):
        raise ConfigError(
            f"{setting} {name!r} may have letters, digits, '_', '.', ':' and '-' only"
        )
