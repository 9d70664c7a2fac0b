"""The provenance of cached feature values."""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256

import msgspec

from headwater.core.values import Part
from headwater.ports import Cache, Cached

_MAX_REMEMBERED = 10_000

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(frozenset[Part]).decode


class ProvenanceCache:
    """The provenance of on-demand values with a ttl; a process reads each one once.

    A value is identified by the time at which it was written. The provenance is empty if the cache
    has lost it.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._known: dict[tuple[str, str], tuple[int, frozenset[Part]]] = {}

    async def put(
        self,
        feature: str,
        entity_id: str,
        written_at: int,
        provenance: frozenset[Part],
        ttl: timedelta,
    ) -> None:
        """Store the provenance of a value for as long as the value lives."""
        self._remember(feature, entity_id, written_at, provenance)
        cached = Cached(_encode(provenance), written_at)
        await self._cache.put(_key(feature, entity_id), cached, ttl)

    async def get(self, feature: str, entity_id: str, written_at: int) -> frozenset[Part]:
        """Return the provenance of a value."""
        known_at, provenance = self._known.get((feature, entity_id), (None, frozenset[Part]()))
        if known_at == written_at:
            return provenance
        cached = await self._cache.get(_key(feature, entity_id))
        found = frozenset[Part]()
        if cached is not None and cached.kept_at == written_at:
            found = _decode(cached.value)
        self._remember(feature, entity_id, written_at, found)
        return found

    def _remember(
        self, feature: str, entity_id: str, written_at: int, provenance: frozenset[Part]
    ) -> None:
        if len(self._known) >= _MAX_REMEMBERED:
            self._known.clear()
        self._known[feature, entity_id] = (written_at, provenance)


def _key(feature: str, entity_id: str) -> str:
    """Return a key that no retriever has: names have no slash."""
    return f"feature/{feature}:{sha256(entity_id.encode()).hexdigest()}"
