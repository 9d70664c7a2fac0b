"""Tracking what a function reads: how old it is, its provenance, and the lineage of a context."""

from __future__ import annotations

from collections.abc import (
    Awaitable,
    Callable,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from headwater.declarations.features import FeatureDef
from headwater.declarations.items import Chunk
from headwater.features.running_calls import IMMUTABLE, argument_key, copy_mutable
from headwater.model.lineage import Context
from headwater.model.values import FeatureValue, Part, TrackedFeature

_MILLISECOND = timedelta(milliseconds=1)


RetrievalKey = tuple[str, bytes]
"""A retriever and its arguments."""
FeatureKey = tuple[str, str, str]
"""The entity, the feature and the id of a value."""


class IndexSearched(msgspec.Struct, frozen=True, kw_only=True):
    """A search of an index: the version that was searched, and what for."""

    name: str
    version: str
    embedder: str | None
    mode: str
    query: str
    filters: Mapping[str, Any] | None


class TrackedRetrieval(NamedTuple):
    """A search as the function got it."""

    retriever: str
    arguments: Mapping[str, Any]
    chunks: Sequence[Chunk]
    searched_at: datetime
    oldest: datetime | None
    """The oldest moment of the search and its reads; None if one of these has no moment."""
    provenance: Set[Part]
    """The stored features and chunks that the search read."""
    cache_hit: bool
    latency_us: int
    failed: bool = False
    searched: IndexSearched | None = None
    sla_ms: int | None = None
    """The SLA of the retriever, in place of that of the context."""
    read: Set[FeatureKey] | None = None
    """The values that the search read, if records keep its results as a whole."""

    @property
    def key(self) -> RetrievalKey:
        """The retriever and its arguments."""
        return (self.retriever, argument_key(self.arguments))


class TrackedContext(NamedTuple):
    """A context as the function got it, and the reads behind it."""

    context: Context
    oldest: datetime | None
    incomplete: bool
    provenance: Set[Part]
    has_failed: bool = False
    """Whether a search inside failed."""
    broken_sla_ms: int | None = None
    """The shortest SLA of its own that a value or a search inside does not meet."""


class HeldRecord(NamedTuple):
    """The record of a context that was assembled inside, and how it is stored."""

    provenance: Set[Part]
    store: Callable[[], Awaitable[object]]


class Moments:
    """The oldest of some moments, and whether something had none."""

    __slots__ = ("incomplete", "oldest")

    def __init__(self) -> None:
        self.oldest: datetime | None = None
        self.incomplete = False

    def add(self, moment: datetime | None) -> None:
        """Add the moment of something; None if it has none."""
        if moment is None:
            self.incomplete = True
        elif self.oldest is None or moment < self.oldest:
            self.oldest = moment


class SeenReads:
    """The values that a walk through the inputs of a value has reached, by the SLA of each.

    Several features may read one value, so the number of paths to it can be exponential.
    """

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: dict[Hashable, list[FeatureValue]] = {}

    def add(self, read: TrackedFeature, sla_ms: int | None) -> bool:
        """Add a value; return False if it was there."""
        value = read.value
        key = (read.entity, read.feature, read.entity_id, sla_ms, value.moment)
        values = self._values.setdefault(key, [])
        if any(other is value or _is_same(other, value) for other in values):
            return False
        values.append(value)
        return True


def judged(read: TrackedFeature) -> Iterable[tuple[TrackedFeature, int | None]]:
    """Return the values by which the freshness of a value is judged, each once with each own SLA.

    The SLA is None where that of the context applies. The values are the value itself, unless its
    inputs decide alone, and its inputs, unless it was computed on a schedule. A feature's own SLA
    also applies to its inputs that have none.
    """
    if read.value.inputs:
        return _judged_inputs(read)
    return () if read.value.rule == "inputs" else ((read, read.sla_ms),)


def _judged_inputs(read: TrackedFeature) -> Iterator[tuple[TrackedFeature, int | None]]:
    seen = SeenReads()
    pending: list[tuple[TrackedFeature, int | None]] = [(read, None)]
    while pending:
        tracked, inherited = pending.pop()
        sla, rule = inherited if tracked.sla_ms is None else tracked.sla_ms, tracked.value.rule
        if seen.add(tracked, sla):
            if rule != "inputs":
                yield tracked, sla
            if rule != "caught_up":
                pending += [(inner, sla) for inner in reversed(tracked.value.inputs)]


class Reads:
    """The reads of one function, one by one; each run of a function has its own."""

    moments: Moments | None = None
    """The moments of the values so far, if nothing else of them is tracked."""

    def __init__(self, outer: Reads | None = None, *, holds: bool = False) -> None:
        self._outer = outer
        self._held: dict[str, HeldRecord] | None = {} if holds else None
        self.features: list[TrackedFeature] = []
        self.retrievals: list[TrackedRetrieval] = []
        self.contexts: list[TrackedContext] = []
        self.provenance: set[Part] = set()
        self._values: dict[tuple[str, str], FeatureValue] = {}
        self._failed: dict[Hashable, TrackedFeature | TrackedRetrieval] = {}

    @property
    def held(self) -> dict[str, HeldRecord] | None:
        """The records of contexts inside that wait until the outermost one is allowed."""
        return self._held if self._outer is None else self._outer.held

    def release(self) -> Iterable[HeldRecord]:
        """Return the held records; later ones are stored at once."""
        held, self._held = self._held or {}, None
        return held.values()

    def track_feature(self, feature: FeatureDef, entity_id: str, value: FeatureValue) -> None:
        """Track a feature's value; if it was read before, only if it has changed."""
        self.track_read(tracked_feature(feature, entity_id, value))

    def track_read(self, read: TrackedFeature) -> None:
        """Track a feature's value that another function may have read."""
        value = read.value
        self.provenance.add(("feature", read.entity, read.feature, read.entity_id))
        if value.window is not None:
            self.provenance.add(("feature", read.entity, value.window.family, read.entity_id))
        if value.provenance:
            self.provenance |= value.provenance
        key = (read.feature, read.entity_id)
        self._failed.pop(key, None)
        before = self._values.get(key)
        if before is not None and _is_same(before, value):
            return
        kept = value if type(value.value) in IMMUTABLE else unshared(value)
        self._values[key] = kept
        self.features.append(read if kept is value else msgspec.structs.replace(read, value=kept))

    def track_retrieval(self, retrieval: TrackedRetrieval) -> None:
        """Track a search, in place of an earlier one that failed."""
        self.provenance |= retrieval.provenance
        self.provenance.update(_found(retrieval))
        if self._failed:
            self._failed.pop(retrieval.key, None)
        self.retrievals.append(retrieval)

    def track_context(self, context: TrackedContext) -> None:
        """Track a context that was assembled inside."""
        self.provenance |= context.provenance
        self.contexts.append(context)

    def track_failure(self, failed: TrackedFeature | TrackedRetrieval) -> None:
        """Track a read that failed, unless the same one has succeeded or succeeds later."""
        if isinstance(failed, TrackedRetrieval):
            if all(retrieval.key != failed.key for retrieval in self.retrievals):
                self._failed[failed.key] = failed
        elif (key := (failed.feature, failed.entity_id)) not in self._values:
            self._failed[key] = failed

    def track_all(self, inner: Reads) -> None:
        """Track everything that another tracker has."""
        self.provenance |= inner.provenance
        for read in inner.features:
            self.track_read(read)
        for retrieval in inner.retrievals:
            self.track_retrieval(retrieval)
        for context in inner.contexts:
            self.track_context(context)
        for failed in inner._failed.values():
            self.track_failure(failed)

    @property
    def has_failed(self) -> bool:
        """Whether a search failed here, in a search or in a context inside."""
        return (
            any(isinstance(failed, TrackedRetrieval) for failed in self._failed.values())
            or any(retrieval.failed for retrieval in self.retrievals)
            or any(context.has_failed for context in self.contexts)
        )

    def close(self) -> None:
        """Turn failed reads into missing values: the function has ended without them."""
        failed, self._failed = self._failed, {}
        for read in failed.values():
            if isinstance(read, TrackedFeature):
                self.track_read(read)
            else:
                self.track_retrieval(read)

    def as_of(self) -> Moments:
        """Return the moments that the reads are as of."""
        moments = self.other_moments()
        for read in self.features:
            moments.add(read.value.as_of)
        return moments

    def current_at(self, features: Sequence[TrackedFeature], now: datetime) -> Moments:
        """Return the moments at which the reads were known to be current.

        A feature or a search that meets an SLA of its own imposes no moment on the contexts
        around this one.
        """
        moments = self.other_moments(now)
        for feature in features:
            for read, sla_ms in judged(feature):
                if imposes(read.value.moment, sla_ms, now):
                    moments.add(read.value.moment)
        return moments

    def other_moments(self, now: datetime | None = None) -> Moments:
        """Return the moments of the searches and the inner contexts.

        With ``now``, leave out searches that meet an SLA of their own.
        """
        moments = Moments()
        for retrieval in self.retrievals:
            if now is None or imposes(retrieval.oldest, retrieval.sla_ms, now):
                moments.add(retrieval.oldest)
        for context in self.contexts:
            # A context that read nothing consists of literal text, which has no moment.
            if context.oldest is not None:
                moments.add(context.oldest)
            moments.incomplete |= context.incomplete
        return moments


class MomentReads(Reads):
    """The reads of a function of whose values nothing but the moments is needed."""

    def __init__(self) -> None:
        super().__init__()
        self.moments: Moments = Moments()

    def track_feature(self, feature: FeatureDef, entity_id: str, value: FeatureValue) -> None:
        """Track the moment of a value."""
        self.moments.add(value.as_of)

    def as_of(self) -> Moments:
        """Return the moments that the reads are as of."""
        return self.moments


def tracked_feature(feature: FeatureDef, entity_id: str, value: FeatureValue) -> TrackedFeature:
    """Return a feature's value with the feature's names and its SLA."""
    sla = feature.freshness_sla
    sla_ms = None if sla is None else sla // _MILLISECOND
    return TrackedFeature(feature.entity.name, feature.name, entity_id, value, sla_ms)


def _found(retrieval: TrackedRetrieval) -> Iterator[Part]:
    """Yield the chunks and the documents that a search found, and the index it searched."""
    index = retrieval.searched
    if index is not None:
        yield ("index", index.name, index.version)
    for chunk in retrieval.chunks:
        if chunk.id is not None:
            yield ("chunk", chunk.id)
        if chunk.document is not None:
            yield ("document", "" if index is None else index.name, chunk.document)


def imposes(moment: datetime | None, own_sla_ms: int | None, now: datetime) -> bool:
    """Return whether a read counts in the contexts around its own: unless it meets its own SLA."""
    return moment is None or own_sla_ms is None or now - moment > own_sla_ms * _MILLISECOND


def unshared(value: FeatureValue) -> FeatureValue:
    """Return the value, or a copy if the function that gets it may change it."""
    kept = copy_mutable(value.value)
    return value if kept is value.value else msgspec.structs.replace(value, value=kept)


def _is_same(before: FeatureValue, value: FeatureValue) -> bool:
    """Return whether two reads got the same value; every read may be current at another moment.

    A window is evaluated at every read, so its value is of another moment each time.
    """
    return (
        before.value == value.value
        and (before.as_of == value.as_of or (value.window is not None and value.as_of is not None))
        and before.source == value.source
        and before.written_at == value.written_at
    )


class OnFailure:
    """Calls a function when the code inside raises an error other than a cancellation."""

    __slots__ = ("_track",)

    def __init__(self, track: Callable[[], None]) -> None:
        self._track = track

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):
            self._track()
