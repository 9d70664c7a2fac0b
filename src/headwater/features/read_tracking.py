"""Tracking what a function reads: how old it is, its provenance, and the lineage of a context."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from headwater.core.values import FeatureValue, Part
from headwater.declarations import Chunk
from headwater.declarations.features import FeatureDef
from headwater.features.running_calls import argument_key, copy_mutable
from headwater.records.lineage import Context


class TrackedFeature(NamedTuple):
    """A feature's value as the function got it."""

    feature: FeatureDef
    entity_id: str
    value: FeatureValue


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

    @property
    def key(self) -> Hashable:
        """The retriever and its arguments."""
        return (self.retriever, argument_key(self.arguments))


class TrackedContext(NamedTuple):
    """A context as the function got it, and the reads behind it."""

    context: Context
    oldest: datetime | None
    incomplete: bool
    provenance: Set[Part]


class Reads:
    """The reads of one function: the oldest moment, whether one had none, and provenance."""

    def __init__(self) -> None:
        self.oldest: datetime | None = None
        self.incomplete = False
        self.provenance: set[Part] = set()

    def track_moment(self, as_of: datetime | None) -> None:
        """Track the moment that something read is as of; None if it has none."""
        if as_of is None:
            self.incomplete = True
        elif self.oldest is None or as_of < self.oldest:
            self.oldest = as_of

    def track_feature(self, feature: FeatureDef, entity_id: str, value: FeatureValue) -> None:
        """Track a feature's value."""
        self.track_moment(value.as_of)
        self.provenance.add(("feature", feature.entity.name, feature.name, entity_id))
        self.provenance |= value.provenance

    def track_retrieval(self, retrieval: TrackedRetrieval) -> None:
        """Track a search."""
        self.track_moment(retrieval.oldest)
        self.provenance |= retrieval.provenance
        self.provenance.update(
            ("chunk", chunk.id) for chunk in retrieval.chunks if chunk.id is not None
        )

    def track_context(self, context: TrackedContext) -> None:
        """Track a context that was assembled inside."""
        if context.oldest is not None:
            self.track_moment(context.oldest)
        self.incomplete |= context.incomplete
        self.provenance |= context.provenance

    def track_failure(self, failed: TrackedFeature | TrackedRetrieval) -> None:
        """Track a read that failed: only a context's lineage has those."""

    def track_all(self, inner: ReadTracker) -> None:
        """Track everything that another tracker has."""
        for feature in inner.features:
            self.track_feature(*feature)
        for retrieval in inner.retrievals:
            self.track_retrieval(retrieval)
        for context in inner.contexts:
            self.track_context(context)


class ReadTracker(Reads):
    """The reads of one assembly or search, one by one; each assembly has its own tracker."""

    def __init__(self) -> None:
        super().__init__()
        self.features: list[TrackedFeature] = []
        self.retrievals: list[TrackedRetrieval] = []
        self.contexts: list[TrackedContext] = []
        self._values: dict[tuple[str, str], FeatureValue] = {}
        self._failed: dict[Hashable, TrackedFeature | TrackedRetrieval] = {}

    def track_feature(self, feature: FeatureDef, entity_id: str, value: FeatureValue) -> None:
        """Track a feature's value; if it was read before, only if it has changed."""
        super().track_feature(feature, entity_id, value)
        key = (feature.name, entity_id)
        self._failed.pop(key, None)
        if self._values.get(key) == value:
            return
        # The function may change the value that it got.
        kept = copy_mutable(value.value)
        copied = value if kept is value.value else msgspec.structs.replace(value, value=kept)
        self._values[key] = copied
        self.features.append(TrackedFeature(feature, entity_id, copied))

    def track_retrieval(self, retrieval: TrackedRetrieval) -> None:
        """Track a search, in place of an earlier one that failed."""
        super().track_retrieval(retrieval)
        if self._failed:
            self._failed.pop(retrieval.key, None)
        self.retrievals.append(retrieval)

    def track_context(self, context: TrackedContext) -> None:
        """Track a context that was assembled inside."""
        super().track_context(context)
        self.contexts.append(context)

    def track_failure(self, failed: TrackedFeature | TrackedRetrieval) -> None:
        """Track a read that failed, unless the same one has succeeded or succeeds later."""
        if isinstance(failed, TrackedRetrieval):
            if all(retrieval.key != failed.key for retrieval in self.retrievals):
                self._failed[failed.key] = failed
        elif (key := (failed.feature.name, failed.entity_id)) not in self._values:
            self._failed[key] = failed

    def close(self) -> None:
        """Turn failed reads into missing values: the function has ended without them."""
        failed, self._failed = self._failed, {}
        for read in failed.values():
            if isinstance(read, TrackedFeature):
                self.track_feature(*read)
            else:
                self.track_retrieval(read)


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
