"""What the tests of embedders share."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headwater.backends.memory import MemoryCache
from headwater.core.clock import Clock
from headwater.core.thread_offload import Offload
from headwater.declarations.indexes import EmbedFunction, IndexDef
from headwater.errors.hints import Location
from headwater.ports import Cache, Embedding
from headwater.retrieval.embeddings import Embedders
from headwater.settings.schema import Settings
from headwater.testing import ManualClock


def declared(embedder: str | EmbedFunction | None = None, **options: Any) -> IndexDef:
    """Return the declaration of an index."""
    return IndexDef(name="docs", location=Location("app.py", 7), embedder=embedder, **options)


class Open(Protocol):
    """Returns embedders with these settings, which are closed with the test."""

    def __call__(
        self, clock: Clock | None = None, cache: Cache | None = None, **settings: Any
    ) -> Embedders: ...


def embedders(clock: Clock | None = None, cache: Cache | None = None, **settings: Any) -> Embedders:
    """Return the embedders of a store with these settings of embeddings."""
    clock = clock or ManualClock()
    chosen = Settings().replace(embeddings=settings)
    return Embedders(chosen, Offload(2, 64), cache or MemoryCache(clock), clock)


def vector(embedding: Embedding) -> NDArray[np.float32]:
    """Return the numbers of an embedding."""
    return np.frombuffer(embedding, "<f4")


def cosine(one: Embedding, other: Embedding) -> float:
    """Return the similarity of two embeddings."""
    return float(vector(one) @ vector(other))
