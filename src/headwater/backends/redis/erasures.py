"""The ledger of erased entities in Redis, and in each partition how many a writer must know."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headwater.backends.redis.client import Redis, command, script_call
from headwater.backends.redis.keys import Keys
from headwater.core.batching import batched
from headwater.ports import Ledger, Tombstone

_PAGE = 1_000
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Tombstone).decode


class RedisErasures:
    """The ledger as the writers of this process know it; a script refuses one that is behind."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis = redis
        self._keys = keys
        self.ledger = Ledger()

    async def refresh(self) -> Ledger:
        """Return the ledger with all erasures that are in Redis."""
        self.ledger.add(*await self.load(self.ledger.revision))
        return self.ledger

    async def load(self, after: int) -> tuple[bytes, list[Tombstone]]:
        """Return the secret and the erasures after a revision, in their order."""
        key = self._keys.erasures
        secret, last = await self._redis.call(command(key, "HMGET", key, "secret", "last"))
        tombstones: list[Tombstone] = []
        for page in batched(range(after + 1, int(last or 0) + 1), _PAGE):
            tombstones += map(_decode, await self._redis.call(command(key, "HMGET", key, *page)))
        return secret or b"", tombstones

    async def save(self, secret: bytes, tombstones: Sequence[Tombstone]) -> None:
        """Add later erasures, and refuse from then on all writers that do not know them."""
        key = self._keys.erasures
        # First the ledger: a writer that is refused has to find what it does not know.
        for page in batched(tombstones, _PAGE):
            entries = [
                part for tombstone in page for part in (tombstone.revision, _encode(tombstone))
            ]
            last = page[-1].revision
            await self._redis.call(script_call("save_erasures", [key], secret, last, *entries))
        # Also without later ones: a partition may have been lost.
        revision = await self.last()
        await self._redis.calls(
            [
                script_call("require_erasures", [part.erasures], revision)
                for part in self._keys.parts
            ]
        )

    async def last(self) -> int:
        """Return the revision of the last erasure that is in Redis, 0 for none."""
        key = self._keys.erasures
        return int(await self._redis.call(command(key, "HGET", key, "last")) or 0)

    async def position(self, entity_id: str) -> str:
        """Return a position before that of every later event of an entity, after all others."""
        call = script_call("accepted_position", [self._keys.of(entity_id).events])
        position: bytes = await self._redis.call(call)
        return position.decode()
