"""The provenance and the inputs of cached feature values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import NamedTuple

import msgspec

from headwater.core.clock import from_micros
from headwater.core.schedules import upcoming
from headwater.declarations.features import FeatureDef
from headwater.declarations.registry import Registry
from headwater.errors import FeatureValueError
from headwater.model.values import (
    FeatureValue,
    FreshnessRule,
    Part,
    Source,
    TrackedFeature,
    WindowRead,
)
from headwater.ports import Backends, Cached

CACHED_DERIVATIONS = "feature/"
"""The beginning of the cache keys of all derivations; no retriever's has a slash in its name."""

_MAX_REMEMBERED = 10_000
_LEAST_KEPT = timedelta(hours=1)


class Derivation(msgspec.Struct, frozen=True):
    """How a value was computed: its provenance, its inputs, and how its freshness is judged."""

    provenance: frozenset[Part] = frozenset()
    inputs: tuple[TrackedFeature, ...] = ()
    rule: FreshnessRule = "age"
    current_at: datetime | None = None
    is_undated: bool = False
    """Whether the value has no moment, because an input had no value."""

    def of(self, value: FeatureValue) -> FeatureValue:
        """Return a value with this derivation."""
        return msgspec.structs.replace(
            value,
            as_of=None if self.is_undated else value.as_of,
            provenance=self.provenance,
            inputs=self.inputs,
            rule=self.rule,
            current_at=self.current_at,
        )


class _CachedInput(msgspec.Struct, frozen=True, omit_defaults=True):
    """An input in the cache, with its value in the JSON form of its feature."""

    entity: str
    feature: str
    entity_id: str
    sla_ms: int | None
    value: msgspec.Raw
    as_of: datetime | None
    source: Source
    written_at: datetime | None
    rule: FreshnessRule
    current_at: datetime | None
    inputs: list[_CachedInput] = []
    window: WindowRead | None = None


class _CachedDerivation(msgspec.Struct, frozen=True):
    """A derivation in the cache."""

    provenance: frozenset[Part]
    inputs: list[_CachedInput]
    rule: FreshnessRule
    current_at: datetime | None
    is_undated: bool = False
    series: dict[str, str] | None = None
    """The series of each feature that was read, whose name another one may have later."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_CachedDerivation).decode


class _Remembered(NamedTuple):
    """A derivation that a process knows, and the series of each feature that was read."""

    written_at: int
    series: Mapping[str, str]
    derivation: Derivation


class DerivationCache:
    """The derivations of values that readers computed; a process reads each one once.

    A value is identified by the time at which it was written. Where the cache is the memory of a
    process, because content must not be stored, derivations that hold none are stored as notes.
    """

    def __init__(self, backends: Backends, registry: Registry) -> None:
        self._cache = backends.cache
        self._notes = backends.notes
        self._registry = registry
        self._remembered: dict[tuple[str, str], _Remembered] = {}
        self.known_drops = 0
        """How often the cache had been dropped when it was last asked."""

    async def drops(self) -> int:
        """Return how often the cache was dropped; forget all that is from before the last drop."""
        drops = await self._cache.drops()
        if drops != self.known_drops:
            self._remembered.clear()
            self.known_drops = drops
        return drops

    async def put(
        self,
        feature: FeatureDef,
        entity_id: str,
        written_at: int,
        derivation: Derivation,
        drops: int,
    ) -> None:
        """Store the derivation of a value, unless there was a drop since its computation began.

        A value without a ttl lives until a schedule replaces it.
        """
        own, series = feature.series, self._series(derivation.provenance)
        if drops == self.known_drops:
            self._remember(own, entity_id, _Remembered(written_at, series, derivation))
        value = _encode(
            _CachedDerivation(
                derivation.provenance,
                self._packed(derivation.inputs),
                derivation.rule,
                derivation.current_at,
                derivation.is_undated,
                series,
            )
        )
        lifetime = feature.ttl or _LEAST_KEPT
        if feature.refresh is not None and feature.ttl is None:
            # One run that fails leaves the value and its derivation.
            written = from_micros(written_at)
            second_run = upcoming(feature.refresh, feature.name, written, 2)[-1]
            lifetime = max(second_run - written, _LEAST_KEPT)
        cache = self._cache if self._has_content(derivation) else self._notes
        cached = Cached(value, written_at)
        await cache.put(_key(own, entity_id), cached, lifetime, drops=drops)

    async def get(self, feature: str, entity_id: str, written_at: int) -> Derivation | None:
        """Return the derivation of a value; None if it was lost, or a declaration has changed."""
        kept = self._remembered.get((feature, entity_id))
        if kept is not None and kept.written_at == written_at:
            return kept.derivation if self._is_served(kept.series) else None
        for cache in (self._notes, self._cache):
            cached = await cache.get(_key(feature, entity_id))
            if cached is not None and cached.kept_at == written_at:
                stored = _decode(cached.value)
                derivation = self._unpacked(stored)
                if derivation is not None:
                    kept = _Remembered(written_at, stored.series or {}, derivation)
                    self._remember(feature, entity_id, kept)
                return derivation
        return None

    def _series(self, provenance: frozenset[Part]) -> dict[str, str]:
        """Return the series of each feature that was read."""
        names = {part[2] for part in provenance if part[0] == "feature"}
        features = self._registry.features
        return {name: features[name].series for name in names if name in features}

    def _is_served(self, series: Mapping[str, str]) -> bool:
        """Return whether the name of each feature is still that of its series."""
        features = self._registry.features
        return all(name in features and features[name].series == series[name] for name in series)

    def _has_content(self, derivation: Derivation) -> bool:
        """Return whether a derivation holds more than values and ids of stored features."""
        return any(part[0] != "feature" for part in derivation.provenance) or any(
            not self._is_stored(read) for read in derivation.inputs
        )

    def _is_stored(self, read: TrackedFeature) -> bool:
        return self._registry.features[read.feature].has_history and all(
            map(self._is_stored, read.value.inputs)
        )

    def _packed(self, inputs: Sequence[TrackedFeature]) -> list[_CachedInput]:
        return [
            _CachedInput(
                read.entity,
                read.feature,
                read.entity_id,
                read.sla_ms,
                self._json(read),
                read.value.as_of,
                read.value.source,
                read.value.written_at,
                read.value.rule,
                read.value.current_at,
                self._packed(read.value.inputs),
                read.value.window,
            )
            for read in inputs
        ]

    def _json(self, read: TrackedFeature) -> msgspec.Raw:
        value = read.value.value
        codec = self._registry.features[read.feature].codec
        return msgspec.Raw(b"null" if value is None else codec.encode(value))

    def _unpacked(self, cached: _CachedDerivation) -> Derivation | None:
        """Return a cached derivation; None if an input was declared differently then."""
        if cached.series is None or not self._is_served(cached.series):
            return None
        try:
            inputs = self._unpacked_inputs(cached.inputs)
        except (KeyError, FeatureValueError):
            return None
        return Derivation(
            cached.provenance, inputs, cached.rule, cached.current_at, cached.is_undated
        )

    def _unpacked_inputs(self, inputs: Sequence[_CachedInput]) -> tuple[TrackedFeature, ...]:
        return tuple(
            TrackedFeature(
                inner.entity,
                inner.feature,
                inner.entity_id,
                FeatureValue(
                    None
                    if bytes(inner.value) == b"null"
                    else self._registry.features[inner.feature].codec.decode(inner.value),
                    inner.as_of,
                    inner.source,
                    inner.written_at,
                    rule=inner.rule,
                    current_at=inner.current_at,
                    inputs=self._unpacked_inputs(inner.inputs),
                    window=inner.window,
                ),
                inner.sla_ms,
            )
            for inner in inputs
        )

    def _remember(self, feature: str, entity_id: str, remembered: _Remembered) -> None:
        if len(self._remembered) >= _MAX_REMEMBERED:
            self._remembered.clear()
        self._remembered[feature, entity_id] = remembered


def _key(feature: str, entity_id: str) -> str:
    return f"{CACHED_DERIVATIONS}{feature}:{sha256(entity_id.encode()).hexdigest()}"
