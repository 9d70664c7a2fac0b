"""Declared indexes: how their documents are split and embedded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Never, Protocol, TypeAlias, get_args

import msgspec

from headwater.core.durations import Duration
from headwater.declarations.checks import Declaration, calling_frame, location_of_frame
from headwater.declarations.runtime import HasRuntime, runtime_of
from headwater.errors import DeclarationError, InvalidInputError
from headwater.errors.hints import Location, nearest
from headwater.model.values import LONGEST_NAME
from headwater.settings.groups import Provider

EmbedFunction = Callable[[list[str]], Any]
"""A function that returns one vector for each text, or an awaitable of these."""

MAX_DIMENSIONS = 16_000
MIN_CHUNK_TOKENS = 16
"""Fewest tokens of a chunk: one character may have four."""
MAX_CHUNK_TOKENS = 8_192
_KEEP = timedelta(days=30)
_PROVIDERS = get_args(Provider)
_OTHER_SERVERS = (
    "A server with OpenAI's API, such as Ollama, is the provider openai with embeddings.base_url"
)
_OPTIONS = ("embedder", "model", "dimensions", "chunk_tokens", "overlap", "keep_versions")


_OPENAI = {
    "text-embedding-3-small": range(1536, 0, -1),
    "text-embedding-3-large": range(3072, 0, -1),
    "text-embedding-ada-002": (1536,),
}
_VOYAGE = (1024, 256, 512, 2048)

MODELS: Mapping[str, Mapping[str, Sequence[int]]] = {
    "local": {"all-MiniLM-L6-v2": (384,)},
    "openai": _OPENAI,
    "azure": _OPENAI,
    "cohere": {
        "embed-v4.0": (1536, 256, 512, 1024),
        "embed-english-v3.0": (1024,),
        "embed-multilingual-v3.0": (1024,),
        "embed-english-light-v3.0": (384,),
        "embed-multilingual-light-v3.0": (384,),
    },
    "voyage": {
        "voyage-4": _VOYAGE,
        "voyage-4-large": _VOYAGE,
        "voyage-4-lite": _VOYAGE,
        "voyage-3.5": _VOYAGE,
        "voyage-3.5-lite": _VOYAGE,
        "voyage-3-large": _VOYAGE,
        "voyage-code-3": _VOYAGE,
        "voyage-finance-2": (1024,),
        "voyage-law-2": (1024,),
    },
}
"""By provider and model: the dimensions that it offers, its usual ones first."""


class IndexDef(msgspec.Struct, frozen=True, kw_only=True):
    """A declared index and its options.

    ``embedder`` is a provider, a provider and its model (``openai/text-embedding-3-small``), a
    function, or None for the provider of the settings.
    """

    name: str
    location: Location
    embedder: str | EmbedFunction | None = None
    model: str | None = None
    dimensions: int | None = None
    chunk_tokens: int = 400
    overlap: int = 40
    keep_versions: timedelta = _KEEP


class TakesIndexes(Protocol):
    """The part of a registry that an index is added to."""

    def add_index(self, index: IndexDef) -> None: ...


class DeclaresIndexes(Protocol):
    """The part of a store's runtime that an index needs."""

    @property
    def registry(self) -> TakesIndexes: ...


class Index:
    """A declared index: documents that are searched by meaning and by words.

    ``embedder`` turns texts into vectors: a provider (``"openai"``, ``"cohere"``, ``"local"``, …),
    a provider and its model (``"openai/text-embedding-3-small"``), or a function that takes a list
    of texts and returns a list of vectors, sync or async, with ``dimensions`` numbers each. Without
    one, the provider of the settings is used. Documents are split into chunks of at most
    ``chunk_tokens`` tokens, of which ``overlap`` are repeated from the chunk before. Chunks that
    were replaced stay searchable with ``as_of`` for ``keep_versions``.

    >>> handbook = Index(store, "handbook", chunk_tokens=200, overlap=20)
    >>> handbook
    <Index 'handbook'>
    """

    def __init__(
        self,
        store: HasRuntime[DeclaresIndexes],
        name: str,
        *,
        embedder: str | EmbedFunction | None = None,
        model: str | None = None,
        dimensions: int | None = None,
        chunk_tokens: int = 400,
        overlap: int = 40,
        keep_versions: Duration = _KEEP,
        **unknown: Never,
    ) -> None:
        location = location_of_frame(calling_frame())
        checks = _IndexChecks("Index", name, location)
        checks.check_name()
        checks.check_options(unknown, _OPTIONS)
        checks.check_embedder(embedder, model, dimensions)
        checks.check_number("chunk_tokens", chunk_tokens, MIN_CHUNK_TOKENS, MAX_CHUNK_TOKENS)
        checks.check_number("overlap", overlap, 0, MAX_CHUNK_TOKENS)
        if overlap * 2 > chunk_tokens:
            raise checks.error(
                f"overlap is {overlap}, more than half of chunk_tokens={chunk_tokens}, so that "
                "chunks would mostly repeat each other; lower it"
            )
        self.name = name
        runtime_of(store).registry.add_index(
            IndexDef(
                name=name,
                location=location,
                embedder=embedder,
                model=model,
                dimensions=dimensions,
                chunk_tokens=chunk_tokens,
                overlap=overlap,
                keep_versions=checks.span("keep_versions", keep_versions) or _KEEP,
            )
        )

    def __repr__(self) -> str:
        return f"<Index {self.name!r}>"


IndexRef: TypeAlias = str | Index
"""An index, by its name or its declaration."""


def index_name(index: IndexRef) -> str:
    """Return the name of an index."""
    if isinstance(index, Index):
        return index.name
    if isinstance(index, str):
        return index
    raise InvalidInputError(f"an index is named by a text or its declaration, not {index!r}")


def check_index_name(name: str, location: Location) -> None:
    """Raise DeclarationError if a text cannot name an index."""
    _IndexChecks("Index", name, location).check_name()


def dimensions_problem(provider: str, model: str, dimensions: int) -> str | None:
    """Return why a model cannot have these dimensions; None if it can, or is not known."""
    offered = MODELS.get(provider, {}).get(model)
    if offered is None or dimensions in offered:
        return None
    if isinstance(offered, range):
        choice = f"at most {offered[0]}"
    else:
        choice = " or ".join(map(str, sorted(offered)))
    return f"{provider}/{model} has {choice} dimensions, not {dimensions}"


class _IndexChecks(Declaration):
    """The checks of an index that is being declared."""

    def check_name(self) -> None:
        name = self.name
        if not isinstance(name, str):
            raise DeclarationError(
                f"an index is named by a text, as in Index(store, 'docs'), not by {name!r}",
                self.location,
            )
        is_word = name.replace("-", "_").isidentifier() and name[0].isalpha()
        if not is_word or len(name) > LONGEST_NAME:
            raise self.error(
                "the name of an index consists of letters, digits, '_' and '-', begins with a "
                f"letter and has at most {LONGEST_NAME} characters"
            )

    def check_embedder(
        self, embedder: str | EmbedFunction | None, model: str | None, dimensions: int | None
    ) -> None:
        """Refuse an embedder that is unknown or not complete; its use shows whether it works."""
        if dimensions is not None:
            self.check_number("dimensions", dimensions, 1, MAX_DIMENSIONS)
        for option, text in (("embedder", embedder), ("model", model)):
            if text is not None and not callable(text) and not (isinstance(text, str) and text):
                raise self.error(f"{option} must be a text that is not empty, not {text!r}")
        provider = embedder.partition("/")[0] if isinstance(embedder, str) else None
        if provider is not None and provider not in _PROVIDERS:
            hint = nearest(provider, _PROVIDERS, _OTHER_SERVERS)
            raise self.error(f"unknown provider {provider!r}; {hint}")
        if callable(embedder) and dimensions is None:
            raise self.error(
                "a function as embedder needs dimensions=: how many numbers its vectors have"
            )
        if isinstance(embedder, str) and "/" in embedder and model is not None:
            raise self.error(
                f"embedder={embedder!r} names a model, and model={model!r} another; drop one"
            )
        if isinstance(embedder, str) and dimensions is not None:
            provider, _, named = embedder.partition("/")
            problem = dimensions_problem(provider, model or named, dimensions)
            if problem is not None:
                raise self.error(problem)

    def check_number(self, option: str, value: object, least: int, most: int) -> None:
        if type(value) is not int or not least <= value <= most:
            raise self.error(
                f"{option} must be a whole number from {least} to {most}, not {value!r}"
            )
