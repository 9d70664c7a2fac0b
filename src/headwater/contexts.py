"""Contexts and retrievers as they are declared: items under a budget, and searches for them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from functools import update_wrapper
from hashlib import sha256
from types import NoneType
from typing import Any, Generic, Literal, Never, ParamSpec, Protocol, Self, get_args

import msgspec

from headwater.define import location_of
from headwater.durations import Duration, to_timedelta
from headwater.errors import (
    DeclarationError,
    DurationError,
    InvalidInputError,
    Location,
    nearest,
)
from headwater.lineage import Context
from headwater.templates import Template, parse_template
from headwater.values import LONGEST_NAME

P = ParamSpec("P")

OnOverflow = Literal["error", "flag"]

# Ages are counted in whole milliseconds.
_SHORTEST_SLA = timedelta(milliseconds=1)


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of text that a retriever found."""

    text: str
    id: str | None = None
    score: float | None = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_types("Chunk", self, _CHUNK)
        if self.id is not None and not self.id.isascii():
            _refuse_surrogates(self.id)
        if self.score is not None:
            # Also NumPy's, which no record can hold.
            msgspec.structs.force_setattr(self, "score", float(self.score))


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
        # One look for what is fine, as nearly all is: a context makes many of these.
        if not (
            type(self.content) is str
            and type(self.priority) is int
            and type(self.required) is type(self.truncate) is bool
            and (self.section is None or type(self.section) is str)
        ):
            _check_types("ContextItem", self, _ITEM)

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


_Kinds = tuple[tuple[str, tuple[type, ...], str], ...]
"""Fields, the types that each may have, and what those are in words."""

_ITEM: _Kinds = (
    ("content", (str,), "plain text"),
    ("priority", (int,), "a whole number"),
    ("required", (bool,), "true or false"),
    ("truncate", (bool,), "true or false"),
    ("section", (str, NoneType), "plain text or None"),
)
_CHUNK: _Kinds = (
    ("text", (str,), "plain text"),
    ("id", (str, NoneType), "plain text or None"),
)


def _check_types(what: str, value: object, fields: _Kinds) -> None:
    for field, kinds, wanted in fields:
        given = getattr(value, field)
        if type(given) not in kinds:
            raise InvalidInputError(
                f"{field} of a {what} is {wanted}, not {type(given).__qualname__}"
            )


def _refuse_surrogates(chunk_id: str) -> None:
    try:
        chunk_id.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"id {chunk_id!r} of a Chunk has half of a surrogate pair, which no store can keep; "
            "remove it"
        ) from error


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
    timeout: timedelta | None


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
    timeout: timedelta | None


class Overrides(msgspec.Struct, frozen=True, kw_only=True):
    """What one call of a context has otherwise than its declaration."""

    max_tokens: int | msgspec.UnsetType | None = msgspec.UNSET
    freshness_sla: timedelta | msgspec.UnsetType | None = msgspec.UNSET
    interaction_ref: Mapping[str, Any] | msgspec.UnsetType | None = msgspec.UNSET


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
        update_wrapper(self, definition.function)
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
        interaction_ref: Mapping[str, Any] | msgspec.UnsetType | None = msgspec.UNSET,
    ) -> ContextFunction[P]:
        """The same context with another budget, SLA or interaction for the calls made of it.

        What is not given stays as it is; None takes it away.
        """
        changed = overrides(max_tokens, freshness_sla, interaction_ref, self._overrides)
        return ContextFunction(self._store, self.definition, changed)


class RetrieverFunction(Generic[P]):
    """A declared retriever: call it to search, with the arguments of its function."""

    def __init__(self, store: Assembles, definition: RetrieverDef) -> None:
        update_wrapper(self, definition.function)
        self._store = store
        self.definition = definition
        self.function = definition.function
        """The function as it was written, for a plain unit test."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, list[Chunk]]:
        return self._store.retrieve(self.definition, args, kwargs)


def overrides(
    max_tokens: int | msgspec.UnsetType | None = msgspec.UNSET,
    freshness_sla: Duration | msgspec.UnsetType | None = msgspec.UNSET,
    interaction_ref: Mapping[str, Any] | msgspec.UnsetType | None = msgspec.UNSET,
    before: Overrides | None = None,
) -> Overrides:
    """What one call wants otherwise, checked."""
    given: dict[str, Any] = {}
    if max_tokens is not msgspec.UNSET:
        if max_tokens is not None and not _is_number(max_tokens):
            raise InvalidInputError(
                f"max_tokens is {max_tokens!r}; give a whole number above zero, or None"
            )
        given["max_tokens"] = max_tokens
    if freshness_sla is not msgspec.UNSET:
        given["freshness_sla"] = None if freshness_sla is None else _sla(freshness_sla)
    if interaction_ref is not msgspec.UNSET:
        given["interaction_ref"] = reference(interaction_ref)
    return msgspec.structs.replace(before or Overrides(), **given)


def reference(given: object) -> Mapping[str, Any] | None:
    """An interaction's reference, refused unless it is made of names and values."""
    if given is None:
        return None
    if not isinstance(given, Mapping) or not all(map(_is_name, given)):
        raise InvalidInputError(
            "interaction_ref is a mapping such as {'call_id': …, 'turn_id': …, 'turn_index': …}, "
            f"not {given!r}"
        )
    return given


def _is_name(key: object) -> bool:
    # What begins with a dollar is a tag in a record.
    return type(key) is str and not key.startswith("$")


def _is_number(given: object) -> bool:
    return type(given) is int and given >= 1


def _sla(given: Duration) -> timedelta:
    sla = to_timedelta(given)
    if sla < _SHORTEST_SLA:
        raise DurationError(given)
    return sla


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
    timeout: Duration | None = None,
    **unknown: Never,
) -> Callable[[Callable[P, Any]], ContextFunction[P]]:
    """Declares a function that returns items as a context, assembled under a token budget.

    The function gives a list of items, one item, or a text, which is a required item. Required
    items are always kept; of the others those of the highest priority, as far as ``max_tokens``
    reach. Everything that the function reads becomes lineage, and must be no older than
    ``freshness_sla``. It may run for ``timeout``, or as long as the settings say.
    """
    _refuse_bare(context, store)

    def declare(function: Callable[P, Any]) -> ContextFunction[P]:
        declaring = _Declaring(context, function, name)
        declaring.refuse_unknown(unknown)
        check = declaring.check
        check("max_tokens", _A_NUMBER, holds=max_tokens is None or _is_number(max_tokens))
        check("freshness_strict", _A_BOOLEAN, holds=type(freshness_strict) is bool)
        check("backfill", _A_BOOLEAN, holds=type(backfill) is bool)
        check("separator", _A_TEXT, holds=type(separator) is str)
        check("model", _A_TEXT, holds=type(model) in (str, NoneType))
        check("version", _A_TEXT, holds=type(version) in (str, NoneType))
        check("on_overflow", "'error' or 'flag'", holds=on_overflow in get_args(OnOverflow))
        definition = ContextDef(
            name=declaring.name,
            version=version,
            function=function,
            is_async=_is_async(function),
            signature=inspect.signature(function),
            definition=_source_hash(function),
            location=declaring.location,
            description=inspect.getdoc(function) or "",
            max_tokens=max_tokens,
            freshness_sla=declaring.span("freshness_sla", freshness_sla, _sla),
            freshness_strict=freshness_strict,
            model=model,
            separator=separator,
            on_overflow=on_overflow,
            backfill=backfill,
            timeout=declaring.span("timeout", timeout, to_timedelta),
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
    timeout: Duration | None = None,
    **unknown: Never,
) -> Callable[[Callable[P, Any]], RetrieverFunction[P]]:
    """Declares a function that searches; it gives texts, mappings with ``text``, or chunks.

    With ``cache_ttl``, the same arguments within that time give the same results, in all
    processes; at most ``top_k`` are kept. It may run for ``timeout``, or as long as the settings
    say.
    """
    _refuse_bare(retriever, store)

    def declare(function: Callable[P, Any]) -> RetrieverFunction[P]:
        declaring = _Declaring(retriever, function, name)
        declaring.refuse_unknown(unknown)
        declaring.check("top_k", _A_NUMBER, holds=top_k is None or _is_number(top_k))
        definition = RetrieverDef(
            name=declaring.name,
            function=function,
            is_async=_is_async(function),
            signature=inspect.signature(function),
            location=declaring.location,
            description=inspect.getdoc(function) or "",
            cache_ttl=declaring.span("cache_ttl", cache_ttl, to_timedelta),
            top_k=top_k,
            timeout=declaring.span("timeout", timeout, to_timedelta),
        )
        store.declare_retriever(definition)
        return RetrieverFunction(store, definition)

    return declare


_A_NUMBER = "a whole number above zero"
_A_BOOLEAN = "True or False"
_A_TEXT = "a text"


class _Declaring:
    """A declaration that is being checked; what is wrong with it is said with file and line."""

    def __init__(
        self, decorator: Callable[..., Any], function: Callable[..., Any], name: str | None
    ) -> None:
        self._decorator = decorator
        self.location = location_of(function, None)
        self.name = function.__name__ if name is None else name
        if not str(self.name).isidentifier() or len(self.name) > LONGEST_NAME:
            raise DeclarationError(
                f"{decorator.__name__} name {self.name!r} is not a plain identifier", self.location
            )

    def check(self, option: str, wanted: str, *, holds: bool) -> None:
        if not holds:
            raise self._wrong(f"{option} must be {wanted}")

    def refuse_unknown(self, unknown: Mapping[str, object]) -> None:
        known = list(inspect.signature(self._decorator).parameters)[:-1]
        for option in unknown:
            raise self._wrong(f"unknown option {option!r}; {nearest(option, known)}")

    def span(
        self, option: str, given: Duration | None, read: Callable[[Duration], timedelta]
    ) -> timedelta | None:
        try:
            return None if given is None else read(given)
        except DurationError as error:
            raise self._wrong(f"{option}: {error}") from error

    def _wrong(self, problem: str) -> DeclarationError:
        return DeclarationError(
            f"{self._decorator.__name__} {self.name!r}: {problem}", self.location
        )


def _refuse_bare(decorator: Callable[..., Any], store: object) -> None:
    """Refuses a decorator that was written without its store."""
    if inspect.isfunction(store):
        name = decorator.__name__
        raise DeclarationError(
            f"@{name} needs the store; write @{name}(store)", location_of(store, None)
        )


def _is_async(function: Callable[..., Any]) -> bool:
    """Says whether a function is to be called on the event loop, be it wrapped by a plain one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        inspect.unwrap(function)
    )


def _source_hash(function: Callable[..., Any]) -> str | None:
    """The hash of a function's text, where there is one: not in every notebook."""
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        return None
    return f"sha256:{sha256(source.encode()).hexdigest()}"
