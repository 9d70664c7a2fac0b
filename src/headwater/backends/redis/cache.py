"""A cache in Redis, which removes expired values."""

from __future__ import annotations

from datetime import timedelta
from struct import Struct

from headwater.backends.redis.client import Redis, command
from headwater.backends.redis.keys import Keys
from headwater.backends.redis.streams import MILLISECOND
from headwater.core.clock import MICROSECOND, Clock
from headwater.ports import Cached

_TIMES = Struct(">qq")
# The first byte of a value with the number of drops; times before the year 4253 begin with 0.
_COUNTED = b"\x01"
_DROPS = Struct(">q")
_NEVER = 2**63 - 1


class RedisCache:
    """Values with the times at which they were stored and expire.

    Readers compare these times with their own clock; Redis only removes expired values. On a
    cluster no script can see a value and the number of drops, so they compare these too.
    """

    def __init__(self, redis: Redis, keys: Keys, clock: Clock) -> None:
        self._redis = redis
        self._keys = keys
        self._clock = clock

    async def get(self, key: str) -> Cached | None:
        name, drops = self._keys.cache + key, self._keys.cache_drops
        packed, count = await self._redis.calls(
            [command(name, "GET", name), command(drops, "GET", drops)]
        )
        if packed is None:
            return None
        if packed.startswith(_COUNTED):
            (before,) = _DROPS.unpack_from(packed, len(_COUNTED))
            if before != int(count or 0):
                return None
            packed = packed[len(_COUNTED) + _DROPS.size :]
        kept_at, expires_at = _TIMES.unpack_from(packed)
        return Cached(packed[_TIMES.size :], kept_at) if expires_at > self._clock.micros() else None

    async def drops(self) -> int:
        name = self._keys.cache_drops
        return int(await self._redis.call(command(name, "GET", name)) or 0)

    async def put(
        self, key: str, cached: Cached, ttl: timedelta, *, drops: int | None = None
    ) -> None:
        name = self._keys.cache + key
        expires_at = min(cached.kept_at + ttl // MICROSECOND, _NEVER)
        packed = _TIMES.pack(cached.kept_at, expires_at) + cached.value
        if drops is not None:
            packed = _COUNTED + _DROPS.pack(drops) + packed
        lifetime = max(1, (expires_at - self._clock.micros()) // MILLISECOND)
        await self._redis.call(command(name, "SET", name, packed, "PX", lifetime))
        # A drop that counted later finds the value; one that counted earlier may have passed it.
        if drops is not None and drops != await self.drops():
            await self._redis.call(command(name, "UNLINK", name))

    async def drop(self, *prefixes: str) -> None:
        name = self._keys.cache_drops
        await self._redis.call(command(name, "INCR", name))
        beginnings = tuple(self._keys.cache + prefix for prefix in prefixes)
        async for names in self._redis.scan(self._keys.cache):
            dropped = [name for name in names if name.startswith(beginnings)]
            await self._redis.calls([command(name, "UNLINK", name) for name in dropped])
