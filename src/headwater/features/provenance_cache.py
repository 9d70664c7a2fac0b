"""What kept values were made of, known for as long as they are kept."""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256

import msgspec

from headwater.core.values import Part
from headwater.ports import Cache, Cached

_MOST = 10_000

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(frozenset[Part]).decode


class ProvenanceCache:
    """Goes with the values of on-demand features that are kept for a while.

    A value is known by the moment at which it was written. Each is looked up once in a process;
    of one whose origins the cache has lost, nothing is known.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._known: dict[tuple[str, str], tuple[int, frozenset[Part]]] = {}

    async def keep(
        self,
        feature: str,
        entity_id: str,
        written_at: int,
        provenance: frozenset[Part],
        ttl: timedelta,
    ) -> None:
        """Keeps what a value was made of, for as long as the value is."""
        self._remember(feature, entity_id, written_at, provenance)
        kept = Cached(_encode(provenance), written_at)
        await self._cache.put(_key(feature, entity_id), kept, ttl)

    async def of(self, feature: str, entity_id: str, written_at: int) -> frozenset[Part]:
        """What a value was made of."""
        known_at, provenance = self._known.get((feature, entity_id), (None, frozenset[Part]()))
        if known_at == written_at:
            return provenance
        kept = await self._cache.get(_key(feature, entity_id))
        same = kept is not None and kept.kept_at == written_at
        found = _decode(kept.value) if kept is not None and same else frozenset[Part]()
        self._remember(feature, entity_id, written_at, found)
        return found

    def _remember(
        self, feature: str, entity_id: str, written_at: int, provenance: frozenset[Part]
    ) -> None:
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[feature, entity_id] = (written_at, provenance)


def _key(feature: str, entity_id: str) -> str:
    """Like no retriever's: a name has no slash."""
    return f"feature/{feature}:{sha256(entity_id.encode()).hexdigest()}"
