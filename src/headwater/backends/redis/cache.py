"""A cache in Redis, which removes expired values."""

from __future__ import annotations

from datetime import timedelta
from struct import Struct

from headwater.backends.redis.client import Redis, command
from headwater.backends.redis.keys import Keys
from headwater.core.clock import MICROSECOND, Clock
from headwater.ports import Cached

_TIMES = Struct(">qq")
_NEVER = 2**63 - 1
_MILLISECOND = 1_000


class RedisCache:
    """Values with the times at which they were stored and expire.

    Readers compare these times with their own clock; Redis only removes expired values.
    """

    def __init__(self, redis: Redis, keys: Keys, clock: Clock) -> None:
        self._redis = redis
        self._keys = keys
        self._clock = clock

    async def get(self, key: str) -> Cached | None:
        name = self._keys.cache + key
        packed: bytes | None = await self._redis.call(command(name, "GET", name))
        if packed is None:
            return None
        kept_at, expires_at = _TIMES.unpack_from(packed)
        return Cached(packed[_TIMES.size :], kept_at) if expires_at > self._clock.micros() else None

    async def put(self, key: str, cached: Cached, ttl: timedelta) -> None:
        name = self._keys.cache + key
        expires_at = min(cached.kept_at + ttl // MICROSECOND, _NEVER)
        packed = _TIMES.pack(cached.kept_at, expires_at) + cached.value
        lifetime = max(1, (expires_at - self._clock.micros()) // _MILLISECOND)
        await self._redis.call(command(name, "SET", name, packed, "PX", lifetime))

    async def drop(self, prefix: str) -> None:
        async for names in self._redis.scan(self._keys.cache + prefix):
            await self._redis.calls([command(name, "UNLINK", name) for name in names])
