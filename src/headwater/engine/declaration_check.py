"""Comparing the declarations of workers: those of one consumer group must run the same features.

An event that one worker has handled is done, so a feature that only another worker declares misses
it, and nothing else shows that. Each worker therefore publishes its declarations, and warns if
another worker has published different ones.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec

from headwater.core.clock import Clock
from headwater.core.logging import Outage, log
from headwater.declarations.registry import Registry
from headwater.errors import BackendError
from headwater.ports import Cache, Cached

PAUSE = timedelta(seconds=10)
KEPT = 3 * PAUSE
_REMEDY = "run the same features file in all of them"


class Declarations(msgspec.Struct, frozen=True):
    """The features that a worker runs, each with its triggers or its interval."""

    worker: str
    features: frozenset[str]


_decode = msgspec.json.Decoder(Declarations).decode


class DeclarationCheck:
    """Compares the declarations of this worker with the ones published last."""

    def __init__(self, cache: Cache, clock: Clock, group: str, declared: Declarations) -> None:
        self._cache = cache
        self._clock = clock
        self._key = f"declared:{group}"
        self._declared = declared
        self._seen = {declared.features}

    async def watch(self, outage: Outage) -> None:
        """Compare every few seconds."""
        while True:
            try:
                await self.compare()
            except BackendError as error:
                outage.report(
                    "warning", "comparing declarations failed; retrying", error, "declared"
                )
            else:
                outage.recovered("declared")
            await asyncio.sleep(PAUSE.total_seconds())

    async def compare(self) -> None:
        """Warn of a different set of features, of each set once, and publish this worker's."""
        published = await self._cache.get(self._key)
        if published is not None:
            self._compare_with(published.value)
        encoded = msgspec.json.encode(self._declared)
        await self._cache.put(self._key, Cached(encoded, self._clock.micros()), KEPT)

    def _compare_with(self, published: bytes) -> None:
        try:
            other = _decode(published)
        except msgspec.MsgspecError:
            return  # written by another version
        if other.features not in self._seen:
            self._seen.add(other.features)
            log.warning(
                "workers declare different features",
                worker=self._declared.worker,
                other=other.worker,
                only_here=sorted(self._declared.features - other.features),
                only_there=sorted(other.features - self._declared.features),
                remedy=_REMEDY,
            )


def declarations_of(worker: str, registry: Registry) -> Declarations:
    """Return the declarations of a worker."""
    features = [
        f"{feature.name} ({', '.join(sorted(feature.triggers)) or feature.refresh})"
        for feature in registry.features.values()
        if feature.triggers or feature.refresh
    ]
    return Declarations(worker, frozenset(features))
