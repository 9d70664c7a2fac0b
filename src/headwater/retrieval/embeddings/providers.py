"""Creating embedders: local, lexical, of a provider, or of a function."""

from __future__ import annotations

from datetime import timedelta

from headwater.core.clock import Clock
from headwater.core.logging import log
from headwater.core.thread_offload import Offload
from headwater.declarations.indexes import EmbedFunction
from headwater.errors import ConfigError
from headwater.errors.hints import nearest
from headwater.ports import Cache
from headwater.retrieval.embeddings.batched import BatchedEmbedder
from headwater.retrieval.embeddings.cached import EmbeddingCache
from headwater.retrieval.embeddings.embedder import Embedder, EmbeddingModel, TextKind
from headwater.retrieval.embeddings.function import FunctionModel
from headwater.retrieval.embeddings.lexical import LexicalEmbedder
from headwater.retrieval.embeddings.local import REMEDY, LocalModel
from headwater.retrieval.embeddings.minilm import model_folder
from headwater.settings.schema import Settings

# The index keeps the embeddings of documents; the cache only saves paying twice for a batch of a
# call that failed in another.
_DOCUMENT_LIFETIME = timedelta(minutes=10)


class Providers:
    """Creates embedders, and closes what they have opened."""

    def __init__(self, settings: Settings, offload: Offload, cache: Cache, clock: Clock) -> None:
        self._settings = settings
        self._offload = offload
        self._cache = cache
        self._clock = clock
        self._local: LocalModel | None = None
        self._has_warned = False

    def create(self, provider: str, model: str | None, dimensions: int | None) -> Embedder:
        """Return a new embedder; raise ConfigError if there is none of this kind."""
        if provider == "auto":
            provider = self._automatic()
        if provider == "lexical":
            return LexicalEmbedder(dimensions)
        if provider == "local":
            return self._create_local(model, dimensions)
        raise ConfigError(f"unknown provider {provider!r}; {nearest(provider, KNOWN)}")

    def function(
        self, function: EmbedFunction, name: str, dimensions: int, *, is_cached: bool
    ) -> Embedder:
        """Return an embedder that calls a function."""
        model = FunctionModel(function, name, dimensions, self._offload, self._settings.embeddings)
        lifetimes = self._lifetimes() if is_cached else {}
        return self._batched(model, lifetimes)

    def _automatic(self) -> str:
        if model_folder() is not None:
            return "local"
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "no local embedding model; searches compare words, not meaning", remedy=REMEDY
            )
        return "lexical"

    async def close(self) -> None:
        """Close all connections and threads."""
        if self._local is not None:
            self._local.close()

    def _create_local(self, model: str | None, dimensions: int | None) -> Embedder:
        local = self._local = self._local or LocalModel()
        name = local.name.partition("/")[2]
        if model not in (None, name) or dimensions not in (None, local.dimensions):
            raise ConfigError(
                f"the local model is {name!r} with {local.dimensions} dimensions; remove model= "
                "and dimensions=, or choose another provider"
            )
        # Embedding a document takes less time than a durable write to the cache.
        return self._batched(local, {"query": self._settings.embeddings.cache_ttl})

    def _batched(
        self, model: EmbeddingModel, lifetimes: dict[TextKind, timedelta], scope: str = ""
    ) -> Embedder:
        cache = EmbeddingCache(model, self._cache, self._clock, lifetimes, scope)
        return BatchedEmbedder(model, cache, self._settings.embeddings.concurrency)

    def _lifetimes(self) -> dict[TextKind, timedelta]:
        ttl = self._settings.embeddings.cache_ttl
        return {"query": ttl, "document": min(ttl, _DOCUMENT_LIFETIME)}


KNOWN = ("lexical", "local")
