"""The choice of an index's embedder, by its declaration and the settings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from threading import Lock
from typing import TYPE_CHECKING

from headwater.core.clock import Clock
from headwater.core.logging import log
from headwater.core.thread_offload import Offload
from headwater.declarations.indexes import EmbedFunction, IndexDef
from headwater.errors import ConfigError, DeclarationError
from headwater.ports import Cache
from headwater.retrieval.embeddings.embedder import Embedder
from headwater.settings.schema import Settings

if TYPE_CHECKING:
    from headwater.retrieval.embeddings.providers import Providers

_FUNCTION = "function"
_FREE = ("auto", "lexical")
"""Providers that can always be used."""
_Key = tuple[str | int, str | None, int | None]
"""The provider or the identity of a function, the model and the dimensions."""


class Embedders:
    """The embedders of an open store; each is created when it is first asked for."""

    def __init__(self, settings: Settings, offload: Offload, cache: Cache, clock: Clock) -> None:
        self._settings = settings.embeddings
        self._services = (settings, offload, cache, clock)
        self._providers: Providers | None = None
        self._created: dict[_Key, Embedder] = {}
        self._lock = Lock()

    def of(self, definition: IndexDef) -> Embedder:
        """Return the embedder that an index declares, or that of the settings.

        Raise DeclarationError if there is none, or if its dimensions are unknown.
        """
        declared = definition.embedder
        try:
            if declared is not None and not isinstance(declared, str):
                return self._of_function(definition, declared)
            provider, model, dimensions = self._chosen(declared, definition)
            return self._get(provider, model or None, dimensions or None)
        except ConfigError as error:
            problem = f"index {definition.name!r}: {error}"
            raise DeclarationError(problem, definition.location) from error

    def check(self, definition: IndexDef) -> None:
        """Raise ConfigError or DeclarationError if the embedder of an index cannot be used here."""
        declared = definition.embedder
        if not isinstance(declared, str | None) or (declared or self._settings.provider) in _FREE:
            return
        embedder = self.of(definition)
        with self._lock:
            self._loaded().check(embedder)

    def advise(self, definitions: Iterable[IndexDef]) -> None:
        """Log a warning for each index whose embedder cannot be used here."""
        for definition in definitions:
            try:
                self.check(definition)
            except (ConfigError, DeclarationError) as error:
                log.advise(
                    "embedder of an index cannot be used",
                    index=definition.name,
                    problem=str(error),
                )

    def named(self, name: str, dimensions: int) -> Embedder | None:
        """Return the embedder of a stored generation.

        Return None if it is a function, or if its provider has no key here.
        """
        provider, _, model = name.partition("/")
        with self._lock:
            is_usable = provider != _FUNCTION and self._loaded().has_key(provider)
        if not is_usable:
            return None
        return self._get(provider, model, dimensions)

    async def close(self) -> None:
        """Close all connections and threads."""
        if self._providers is not None:
            await self._providers.close()

    def _chosen(self, declared: str | None, definition: IndexDef) -> tuple[str, str, int]:
        """Return provider, model and dimensions, empty where neither index nor settings say it."""
        settings = self._settings
        provider, _, model = (declared or settings.provider).partition("/")
        model, dimensions = model or definition.model or "", definition.dimensions or 0
        if provider == settings.provider:
            if model in ("", settings.model):
                dimensions = dimensions or settings.dimensions
            model = model or settings.model
        return provider, model, dimensions

    def _of_function(self, definition: IndexDef, function: EmbedFunction) -> Embedder:
        dimensions, model = definition.dimensions, definition.model
        if dimensions is None:
            raise ConfigError("a function's dimensions must be declared; pass dimensions=")
        named = function if inspect.isroutine(function) else type(function)
        name = f"{_FUNCTION}/{model or named.__name__}"
        return self._kept(
            (id(function), name, dimensions),
            # Without a model, another function may have the same name.
            lambda providers: providers.function(
                function, name, dimensions, is_cached=model is not None
            ),
        )

    def _get(self, provider: str, model: str | None, dimensions: int | None) -> Embedder:
        return self._kept(
            (provider, model, dimensions),
            lambda providers: providers.create(provider, model, dimensions),
        )

    def _kept(self, key: _Key, create: Callable[[Providers], Embedder]) -> Embedder:
        with self._lock:
            if key not in self._created:
                self._created[key] = create(self._loaded())
            return self._created[key]

    def _loaded(self) -> Providers:
        if self._providers is None:
            from headwater.retrieval.embeddings.providers import Providers  # noqa: PLC0415 - loads NumPy

            self._providers = Providers(*self._services)
        return self._providers
