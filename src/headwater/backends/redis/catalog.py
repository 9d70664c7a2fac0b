"""The catalog of features in Redis: one hash, replaced by a script."""

from __future__ import annotations

from headwater.backends.redis.client import Redis, command, script_call
from headwater.backends.redis.keys import Keys
from headwater.errors import BackendError
from headwater.model.catalog import CatalogState
from headwater.ports import decode_catalog, encode_catalog

_PATIENCE_SECONDS = 0.5


class RedisCatalog:
    """One JSON document and its revision."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis = redis
        self._key = keys.catalog

    async def load(self) -> CatalogState:
        state = await self._redis.call(command(self._key, "HGET", self._key, "state"))
        return CatalogState() if state is None else decode_catalog(state)

    async def revision(self) -> int:
        # Readers ask before they read, so a server that does not answer must not delay them.
        call = command(self._key, "HGET", self._key, "revision")
        (answer,) = await self._redis.calls_apart([call], _PATIENCE_SECONDS)
        if isinstance(answer, BackendError):
            raise answer
        return int(answer or 0)

    async def replace(self, state: CatalogState) -> bool:
        return await self.restore(state, state.revision - 1)

    async def restore(self, state: CatalogState, before: int) -> bool:
        """Store a catalog in place of the one with another revision; return whether it was."""
        call = script_call(
            "replace_catalog", [self._key], before, state.revision, encode_catalog(state)
        )
        return bool(await self._redis.call(call))
