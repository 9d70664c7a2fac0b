"""Workers of one store are to run the same features: an event that one has handled is done.

What only one of them declares misses the events that another handles, and nothing else shows it.
So each says what it declares, and warns when it finds that another declares something else.
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


class _Declared(msgspec.Struct, frozen=True):
    worker: str
    features: frozenset[str]


_decode = msgspec.json.Decoder(_Declared).decode


class DeclarationCheck:
    """Compares what this worker declares with what another one did, the last to say so."""

    def __init__(
        self, registry: Registry, cache: Cache, clock: Clock, worker: str, group: str
    ) -> None:
        self._cache = cache
        self._clock = clock
        self._key = f"declared:{group}"
        self._own = _Declared(worker, frozenset(_declared(registry)))
        self._known = {self._own.features}

    async def watch(self, outage: Outage) -> None:
        """Compares now and then."""
        while True:
            try:
                await self.compare()
            except BackendError as error:
                outage.tell(
                    "warning", "what other workers declare could not be read", error, "declared"
                )
            else:
                outage.over("declared")
            await asyncio.sleep(PAUSE.total_seconds())

    async def compare(self) -> None:
        """Warns of each other set of features once, and says what is declared here."""
        kept = await self._cache.get(self._key)
        if kept is not None:
            self._hold_against(kept.value)
        own = msgspec.json.encode(self._own)
        await self._cache.put(self._key, Cached(own, self._clock.micros()), KEPT)

    def _hold_against(self, kept: bytes) -> None:
        try:
            other = _decode(kept)
        except msgspec.MsgspecError:
            return  # of another version, which writes it otherwise
        if other.features not in self._known:
            self._known.add(other.features)
            log.warning(
                "another worker runs other features",
                worker=self._own.worker,
                other=other.worker,
                only_here=sorted(self._own.features - other.features),
                only_there=sorted(other.features - self._own.features),
                remedy=_REMEDY,
            )


def _declared(registry: Registry) -> list[str]:
    """What the worker runs: features with their triggers, or how often they are refreshed."""
    return [
        f"{feature.name} ({', '.join(sorted(feature.triggers)) or feature.refresh})"
        for feature in registry.features.values()
        if feature.triggers or feature.refresh
    ]
