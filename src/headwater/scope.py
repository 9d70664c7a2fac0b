"""What a context's function sees: everything that it reads is noted, and becomes lineage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from headwater.contexts import Chunk
from headwater.define import FeatureDef
from headwater.lineage import Context
from headwater.values import FeatureValue
from headwater.workspace import Reads, current_reads


class FeatureNote(NamedTuple):
    """A feature's value as the function got it."""

    feature: FeatureDef
    entity_id: str
    value: FeatureValue


class RetrievalNote(NamedTuple):
    """A search as the function got it."""

    retriever: str
    arguments: Mapping[str, Any]
    chunks: Sequence[Chunk]
    searched_at: datetime
    cache_hit: bool
    latency_us: int


class Scope(Reads):
    """The notes of one assembly; assemblies that run at the same time have each their own."""

    def __init__(self) -> None:
        super().__init__()
        self.features: list[FeatureNote] = []
        self.retrievals: list[RetrievalNote] = []
        self.contexts: list[Context] = []

    def note(self, feature: FeatureDef, entity_id: str, value: FeatureValue) -> None:
        super().note(feature, entity_id, value)
        self.features.append(FeatureNote(feature, entity_id, value))

    def note_retrieval(self, retrieval: RetrievalNote) -> None:
        self.note_moment(retrieval.searched_at)
        self.retrievals.append(retrieval)

    def note_context(self, context: Context) -> None:
        self.contexts.append(context)


def current_scope() -> Scope | None:
    """The scope of the context whose function is running here, if one is."""
    reads = current_reads()
    return reads if isinstance(reads, Scope) else None
