"""Creating embedders: local, lexical, of a provider, or of a function."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence, Sized
from datetime import timedelta
from functools import partial
from typing import Any

import httpx

from headwater.core.batching import batched
from headwater.core.clock import Clock
from headwater.core.logging import log
from headwater.core.masking import mask_address
from headwater.core.thread_offload import Offload
from headwater.declarations.function_checks import is_async
from headwater.declarations.indexes import EmbedFunction, dimensions_problem
from headwater.errors import (
    ConfigError,
    EmbeddingError,
    HeadwaterError,
    MissingApiKeyError,
)
from headwater.errors.hints import nearest
from headwater.features.user_calls import LimitedCalls, Raising
from headwater.ports import Cache, Embedding
from headwater.retrieval.embeddings.batched import BatchedEmbedder, EmbeddingCache
from headwater.retrieval.embeddings.embedder import (
    INSTALL_LOCAL_MODEL,
    Embedder,
    EmbeddingModel,
    TextKind,
)
from headwater.retrieval.embeddings.local import LexicalEmbedder, LocalModel, check_model_files
from headwater.retrieval.embeddings.minilm import model_folder
from headwater.retrieval.embeddings.remote import Connections, RemoteModel
from headwater.retrieval.embeddings.vectors import to_embeddings
from headwater.retrieval.embeddings.wire import FORMATS, ProviderEndpoint, WireFormat
from headwater.settings.groups import EmbeddingSettings
from headwater.settings.kinds import rates_of
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
        self._connections: Connections | None = None
        self._has_warned = False

    def create(self, provider: str, model: str | None, dimensions: int | None) -> Embedder:
        """Return a new embedder; raise ConfigError if there is none of this kind."""
        if provider == "auto":
            provider = self._automatic()
        if provider == "lexical":
            return LexicalEmbedder(dimensions)
        if provider == "local":
            return self._create_local(model, dimensions)
        if provider in FORMATS:
            return self._create_remote(provider, FORMATS[provider], model, dimensions)
        providers = ("local", "lexical", *FORMATS)
        raise ConfigError(f"unknown provider {provider!r}; {nearest(provider, providers)}")

    def has_key(self, provider: str) -> bool:
        """Return whether a provider can be used: it has its key, or needs none."""
        if provider not in FORMATS:
            return True
        endpoint = self._endpoint(provider, FORMATS[provider])
        return bool(endpoint.key) or not endpoint.needs_key

    def check(self, embedder: Embedder) -> None:
        """Raise ConfigError if an embedder lacks a key or files, or if its dimensions are wrong."""
        provider, _, model = embedder.name.partition("/")
        if provider == "local":
            check_model_files()
        if not self.has_key(provider):
            endpoint = self._endpoint(provider, FORMATS[provider])
            raise MissingApiKeyError(embedder.name, endpoint.variables)
        problem = dimensions_problem(provider, model, embedder.dimensions)
        if problem is not None:
            raise ConfigError(problem)

    def function(
        self, function: EmbedFunction, name: str, dimensions: int, *, is_cached: bool
    ) -> Embedder:
        """Return an embedder that calls a function."""
        model = FunctionModel(function, name, dimensions, self._offload, self._settings.embeddings)
        return self._batched(model, self._of_queries() if is_cached else {})

    def _automatic(self) -> str:
        if model_folder() is not None:
            return "local"
        if not self._has_warned:
            self._has_warned = True
            log.advise(
                "no local embedding model; searches compare words, not meaning",
                remedy=INSTALL_LOCAL_MODEL,
            )
        return "lexical"

    async def close(self) -> None:
        """Close all connections and threads."""
        if self._local is not None:
            self._local.close()
        if self._connections is not None:
            await self._connections.close()

    def _create_local(self, model: str | None, dimensions: int | None) -> Embedder:
        local = self._local = self._local or LocalModel()
        name = local.name.partition("/")[2]
        if model not in (None, name) or dimensions not in (None, local.dimensions):
            raise ConfigError(
                f"the local model is {name!r} with {local.dimensions} dimensions; remove model= "
                "and dimensions=, or choose another provider"
            )
        return self._batched(local, self._of_queries())

    def _create_remote(
        self, provider: str, wire: WireFormat, model: str | None, dimensions: int | None
    ) -> Embedder:
        model = model or wire.default_model
        dimensions = dimensions or wire.models.get(model, (None,))[0]
        if dimensions is None:
            raise ConfigError(
                f"the dimensions of {provider}/{model} are unknown; set them with "
                "Index(dimensions=…) or embeddings.dimensions"
            )
        settings, endpoint = self._settings.embeddings, self._endpoint(provider, wire)
        self._connections = self._connections or Connections(settings.concurrency)
        remote = RemoteModel(
            f"{provider}/{model}",
            dimensions,
            wire,
            endpoint,
            settings,
            self._connections,
            self._clock,
            rates_of(self._settings.prices),
        )
        lifetimes = self._of_queries()
        lifetimes["document"] = min(lifetimes["query"], _DOCUMENT_LIFETIME)
        return self._batched(remote, lifetimes, endpoint.base_url)

    def _endpoint(self, provider: str, wire: WireFormat) -> ProviderEndpoint:
        """Return the address of a provider and the key for it, by the settings."""
        settings = self._settings.embeddings
        is_chosen = settings.provider in (provider, "auto")
        base_url = (is_chosen and settings.base_url) or wire.base_url
        try:
            scheme = httpx.URL(base_url).scheme
        except httpx.InvalidURL:
            scheme = ""  # the error's text may have a part of a password
        if scheme not in ("http", "https"):
            raise ConfigError(
                f"the address of the provider {provider!r} must be set: embeddings.base_url, such "
                f"as https://NAME.openai.azure.com, not {mask_address(base_url)!r}"
            ) from None
        is_own = wire.base_url in ("", base_url.rstrip("/"))
        keys = {
            "openai": settings.openai_api_key,
            "azure": settings.azure_api_key,
            "cohere": settings.cohere_api_key,
            "voyage": settings.voyage_api_key,
        }
        # Another server must not get the key of the provider.
        key = (is_chosen and settings.api_key) or (keys[provider] if is_own else "")
        variables = f"HEADWATER_EMBEDDINGS_API_KEY or {wire.variable}"
        return ProviderEndpoint(
            base_url, key.strip(), is_own, variables if is_chosen else wire.variable
        )

    def _batched(
        self, model: EmbeddingModel, lifetimes: dict[TextKind, timedelta], scope: str = ""
    ) -> Embedder:
        cache = EmbeddingCache(model, self._cache, self._clock, lifetimes, scope)
        return BatchedEmbedder(model, cache, self._settings.embeddings.concurrency)

    def _of_queries(self) -> dict[TextKind, timedelta]:
        # A model in this process embeds a document in less time than a durable write takes.
        return {"query": self._settings.embeddings.cache_ttl}


class FunctionModel:
    """Calls a function with a list of texts; a sync one runs in a thread."""

    def __init__(
        self,
        function: EmbedFunction,
        name: str,
        dimensions: int,
        offload: Offload,
        settings: EmbeddingSettings,
    ) -> None:
        self.name = name
        self.dimensions = dimensions
        self.is_async = is_async(function)
        self.timeout = None
        self._function = function
        self._calls = LimitedCalls(offload, settings.timeout)
        self._batch_size = settings.batch_size

    def batches(self, texts: Sequence[str]) -> Iterable[Sequence[str]]:
        return batched(texts, self._batch_size)

    async def embed(self, texts: Sequence[str], kind: TextKind) -> list[Embedding]:
        with Raising(partial(_failed, self.name)):
            call = partial(self._function, list(texts))
            vectors = await self._calls.call(self, call, _timed_out, _sized)
        return to_embeddings(self, vectors, len(texts))


def _sized(vectors: Any) -> Any:
    """Return vectors as they are, or those of an iterator; an awaitable stays one."""
    is_ready = isinstance(vectors, Sized) or inspect.isawaitable(vectors)
    return vectors if is_ready else list(vectors)


def _timed_out(name: str, seconds: float) -> EmbeddingError:
    return EmbeddingError(
        name,
        f"it timed out after {seconds:g} s",
        "make it faster, or raise HEADWATER_EMBEDDINGS_TIMEOUT",
    )


def _failed(name: str, raised: Exception) -> HeadwaterError:
    problem = f"it raised {type(raised).__name__}: {raised}"
    return EmbeddingError(name, problem, "correct the function, or the service that it calls")
