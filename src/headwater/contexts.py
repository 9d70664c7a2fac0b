"""Contexts and retrievers as they are declared: items under a budget, and searches for them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from hashlib import sha256
from typing import Any, Generic, Literal, ParamSpec, Protocol, Self

import msgspec

from headwater.define import location_of
from headwater.durations import Duration, to_timedelta
from headwater.errors import DeclarationError, DurationError, InvalidInputError, Location
from headwater.lineage import Context
from headwater.templates import Template, parse_template

P = ParamSpec("P")

OnOverflow = Literal["error", "flag"]


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of text that a retriever found."""

    text: str
    id: str | None = None
    score: float | None = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)


class ContextItem(msgspec.Struct, frozen=True):
    """A piece of a context: higher ``priority`` is kept longer, the lowest is dropped first.

    The content is literal text. Only ``ContextItem.template(…)`` resolves ``{feature}``, for the
    parameter of the context that is named like the entity's id field.
    """

    content: str
    priority: int = 0
    required: bool = False
    source: Any = None
    truncate: bool = False
    section: str | None = None
    parsed: Template | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.content, str):
            raise InvalidInputError(
                f"the content of a ContextItem is text, not {type(self.content).__name__}"
            )
        if type(self.priority) is not int:
            raise InvalidInputError(f"priority is a whole number, not {self.priority!r}")

    @classmethod
    def template(
        cls,
        text: str,
        *,
        priority: int = 0,
        required: bool = False,
        source: Any = None,
        truncate: bool = False,
        section: str | None = None,
    ) -> Self:
        """An item whose ``{feature}`` references are resolved for the context's entity."""
        return cls(text, priority, required, source, truncate, section, parse_template(text))


class ContextDef(msgspec.Struct, frozen=True, kw_only=True):
    """A context and everything that was said about how it is assembled."""

    name: str
    version: str | None
    function: Callable[..., Any]
    is_async: bool
    signature: inspect.Signature
    definition: str | None
    location: Location
    description: str
    max_tokens: int | None
    freshness_sla: timedelta | None
    freshness_strict: bool
    model: str | None
    separator: str
    on_overflow: OnOverflow
    backfill: bool


class RetrieverDef(msgspec.Struct, frozen=True, kw_only=True):
    """A search and everything that was said about it."""

    name: str
    function: Callable[..., Any]
    is_async: bool
    signature: inspect.Signature
    location: Location
    description: str
    cache_ttl: timedelta | None
    top_k: int | None


class Overrides(msgspec.Struct, frozen=True, kw_only=True):
    """What one call of a context has otherwise than its declaration."""

    max_tokens: int | msgspec.UnsetType | None = msgspec.UNSET
    freshness_sla: timedelta | msgspec.UnsetType | None = msgspec.UNSET
    interaction_ref: Mapping[str, Any] | None = None


class Assembles(Protocol):
    """Whatever assembles contexts and runs retrievers; a FeatureStore in practice."""

    def declare_context(self, context: ContextDef) -> None: ...

    def declare_retriever(self, retriever: RetrieverDef) -> None: ...

    async def assemble(
        self,
        context: ContextDef,
        arguments: Sequence[Any],
        named: Mapping[str, Any],
        overrides: Overrides,
    ) -> Context: ...

    async def retrieve(
        self, retriever: RetrieverDef, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> list[Chunk]: ...


class ContextFunction(Generic[P]):
    """A declared context: call it to assemble, with the arguments of its function."""

    def __init__(
        self, store: Assembles, definition: ContextDef, overrides: Overrides | None = None
    ) -> None:
        self._store = store
        self._overrides = overrides or Overrides()
        self.definition = definition
        self.function = definition.function
        """The function as it was written, for a plain unit test."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Context]:
        return self._store.assemble(self.definition, args, kwargs, self._overrides)

    def options(
        self,
        *,
        max_tokens: int | msgspec.UnsetType | None = msgspec.UNSET,
        freshness_sla: Duration | msgspec.UnsetType | None = msgspec.UNSET,
        interaction_ref: Mapping[str, Any] | None = None,
    ) -> ContextFunction[P]:
        """The same context with another budget, SLA or interaction for the calls made of it."""
        return ContextFunction(
            self._store, self.definition, overrides(max_tokens, freshness_sla, interaction_ref)
        )


class RetrieverFunction(Generic[P]):
    """A declared retriever: call it to search, with the arguments of its function."""

    def __init__(self, store: Assembles, definition: RetrieverDef) -> None:
        self._store = store
        self.definition = definition
        self.function = definition.function
        """The function as it was written, for a plain unit test."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, list[Chunk]]:
        return self._store.retrieve(self.definition, args, kwargs)


def overrides(
    max_tokens: int | msgspec.UnsetType | None,
    freshness_sla: Duration | msgspec.UnsetType | None,
    interaction_ref: Mapping[str, Any] | None,
) -> Overrides:
    """What one call wants otherwise, checked."""
    if isinstance(max_tokens, int) and max_tokens < 1:
        raise InvalidInputError(f"max_tokens is {max_tokens}; give a number above zero, or None")
    sla = freshness_sla
    return Overrides(
        max_tokens=max_tokens,
        freshness_sla=sla if sla is None or sla is msgspec.UNSET else to_timedelta(sla),
        interaction_ref=interaction_ref,
    )


def context(
    store: Assembles,
    *,
    max_tokens: int | None = None,
    freshness_sla: Duration | None = None,
    freshness_strict: bool = False,
    model: str | None = None,
    name: str | None = None,
    version: str | None = None,
    separator: str = "\n\n",
    on_overflow: OnOverflow = "error",
    backfill: bool = False,
) -> Callable[[Callable[P, Any]], ContextFunction[P]]:
    """Declares a function that returns items as a context, assembled under a token budget.

    Required items are always kept; of the others those of the highest priority, as far as
    ``max_tokens`` reach. Everything that the function reads becomes lineage, and must be no older
    than ``freshness_sla``.
    """

    def declare(function: Callable[P, Any]) -> ContextFunction[P]:
        location = location_of(function, None)
        chosen = name or function.__name__
        _check(chosen, max_tokens, on_overflow, location)
        definition = ContextDef(
            name=chosen,
            version=version,
            function=function,
            is_async=inspect.iscoroutinefunction(function),
            signature=inspect.signature(function),
            definition=_source_hash(function),
            location=location,
            description=inspect.getdoc(function) or "",
            max_tokens=max_tokens,
            freshness_sla=_span(freshness_sla, "freshness_sla", chosen, location),
            freshness_strict=freshness_strict,
            model=model,
            separator=separator,
            on_overflow=on_overflow,
            backfill=backfill,
        )
        store.declare_context(definition)
        return ContextFunction(store, definition)

    return declare


def retriever(
    store: Assembles,
    *,
    cache_ttl: Duration | None = None,
    name: str | None = None,
    top_k: int | None = None,
) -> Callable[[Callable[P, Any]], RetrieverFunction[P]]:
    """Declares a function that searches; it gives texts, mappings with ``text``, or chunks.

    With ``cache_ttl``, the same arguments within that time give the same results, in all
    processes; at most ``top_k`` are kept.
    """

    def declare(function: Callable[P, Any]) -> RetrieverFunction[P]:
        location = location_of(function, None)
        chosen = name or function.__name__
        if top_k is not None and top_k < 1:
            raise DeclarationError(f"retriever {chosen!r}: top_k must be above zero", location)
        definition = RetrieverDef(
            name=chosen,
            function=function,
            is_async=inspect.iscoroutinefunction(function),
            signature=inspect.signature(function),
            location=location,
            description=inspect.getdoc(function) or "",
            cache_ttl=_span(cache_ttl, "cache_ttl", chosen, location),
            top_k=top_k,
        )
        store.declare_retriever(definition)
        return RetrieverFunction(store, definition)

    return declare


def _check(name: str, max_tokens: int | None, on_overflow: str, location: Location) -> None:
    if max_tokens is not None and (type(max_tokens) is not int or max_tokens < 1):
        raise DeclarationError(
            f"context {name!r}: max_tokens must be a whole number above zero", location
        )
    if on_overflow not in ("error", "flag"):
        raise DeclarationError(f"context {name!r}: on_overflow is 'error' or 'flag'", location)


def _span(given: Duration | None, option: str, name: str, location: Location) -> timedelta | None:
    if given is None:
        return None
    try:
        return to_timedelta(given)
    except DurationError as error:
        raise DeclarationError(f"{name!r}: {option}: {error}", location) from error


def _source_hash(function: Callable[..., Any]) -> str | None:
    """The hash of a function's text, where there is one: not in every notebook."""
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        return None
    return f"sha256:{sha256(source.encode()).hexdigest()}"
