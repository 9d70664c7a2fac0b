"""The decorators ``context`` and ``retriever``, which report errors with file and line."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterable, Iterator
from datetime import time
from enum import Enum
from hashlib import sha256
from typing import Any, Never, Protocol, get_args, get_type_hints

from headwater.core.canonical_json import to_tagged
from headwater.core.codec import PydanticModel
from headwater.core.durations import Duration
from headwater.declarations.checks import Checks, calling_frame, location_of_frame
from headwater.declarations.contexts import (
    Assembles,
    ContextDef,
    ContextFunction,
    Limit,
    OnOverflow,
    P,
    RetrieverDef,
    RetrieverFunction,
    is_number,
    is_text,
    sla_of,
)
from headwater.declarations.entity_decorator import Declares
from headwater.declarations.runtime import HasRuntime, runtime_of
from headwater.errors import DeclarationError, RecordValueError


class Runs(Declares, Assembles, Protocol):
    """A store's runtime, as the decorators need it."""


def context(
    store: HasRuntime[Runs],
    *positional: Never,
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
    allow_looser: Limit | Iterable[Limit] = (),
    **unknown: Never,
) -> Callable[[Callable[P, Any]], ContextFunction[P]]:
    """Declare a function that returns items as a context, assembled under a token budget.

    The function returns a list of items, one item, or a text, which is a required item. Required
    items are kept; the others by priority, as far as ``max_tokens`` allows. The values that the
    function reads become lineage, and must not be older than ``freshness_sla``. A call may tighten
    both limits; it may loosen the ones that ``allow_looser`` names.

    >>> @store.context(max_tokens=100)
    ... async def greeting(user_id: str) -> list[ContextItem]:
    ...     return [ContextItem("You are a support agent.", required=True)]
    """
    _check_called_with_store(context, store, positional)

    def declare(function: Callable[P, Any]) -> ContextFunction[P]:
        checks = _Checks(context, function, name, unknown)
        check = checks.check
        check("max_tokens", _A_COUNT, holds=max_tokens is None or is_number(max_tokens))
        for option, flag in (("freshness_strict", freshness_strict), ("backfill", backfill)):
            check(option, _A_BOOLEAN, holds=type(flag) is bool)
        check("separator", _A_TEXT, holds=is_text(separator))
        for option, text in (("model", model), ("version", version)):
            check(option, _A_TEXT, holds=text is None or is_text(text))
        check("on_overflow", "'error' or 'flag'", holds=on_overflow in get_args(OnOverflow))
        if freshness_strict and freshness_sla is None:
            raise checks.error(
                "freshness_strict needs freshness_sla: the age from which values are refused"
            )
        looser = (allow_looser,) if isinstance(allow_looser, str) else tuple(allow_looser)
        limits = get_args(Limit)
        check("allow_looser", _LIMITS, holds=all(option in limits for option in looser))
        definition = ContextDef(
            name=checks.name,
            version=version,
            function=function,
            is_async=_is_async(function),
            signature=checks.checked_signature(function),
            definition=_source_hash(function),
            location=checks.location,
            description=inspect.getdoc(function) or "",
            max_tokens=max_tokens,
            freshness_sla=checks.span("freshness_sla", freshness_sla, sla_of),
            freshness_strict=freshness_strict,
            model=model,
            separator=separator,
            on_overflow=on_overflow,
            backfill=backfill,
            timeout=checks.span("timeout", timeout),
            allow_looser=looser,
        )
        runtime_of(store).registry.add_context(definition)
        return ContextFunction(runtime_of(store), definition)

    return declare


def retriever(
    store: HasRuntime[Runs],
    *positional: Never,
    cache_ttl: Duration | None = None,
    name: str | None = None,
    top_k: int | None = None,
    timeout: Duration | None = None,
    **unknown: Never,
) -> Callable[[Callable[P, Any]], RetrieverFunction[P]]:
    """Declare a function that searches and returns texts, mappings with ``text``, or chunks.

    It may also be a generator of them. With ``cache_ttl``, calls with the same arguments within
    that time return the same results, in all processes. At most ``top_k`` results are kept. It may
    run for ``timeout``; the default is in the settings.

    >>> @store.retriever(cache_ttl="5m")
    ... def find_pages(query: str) -> list[str]:
    ...     return [f"A page about {query}"]
    >>> [chunk.text for chunk in await find_pages("parcels")]
    ['A page about parcels']
    """
    _check_called_with_store(retriever, store, positional)

    def declare(function: Callable[P, Any]) -> RetrieverFunction[P]:
        checks = _Checks(retriever, function, name, unknown)
        checks.check("top_k", _A_NUMBER, holds=top_k is None or is_number(top_k))
        checks.check("its body", _A_SEARCH, holds=not _is_empty(function))
        definition = RetrieverDef(
            name=checks.name,
            function=function,
            is_async=_is_async(function),
            signature=checks.checked_signature(function),
            location=checks.location,
            description=inspect.getdoc(function) or "",
            cache_ttl=checks.span("cache_ttl", cache_ttl),
            top_k=top_k,
            timeout=checks.span("timeout", timeout),
        )
        runtime_of(store).registry.add_retriever(definition)
        return RetrieverFunction(runtime_of(store), definition)

    return declare


_A_NUMBER = "a whole number above zero"
_A_COUNT = "a whole number above zero and below 2^53"
_ALTERNATIVES: dict[type, str] = {
    Enum: "take the value of its member, annotated as a Literal such as Literal['red', 'blue']",
    time: "take a text such as '09:30', or a datetime",
    tuple: "take a plain tuple or a dataclass",
    PydanticModel: "take a dataclass, or the dict that its model_dump() returns",
}
_A_SEARCH = "a search; it is empty and would never return results"
_A_BOOLEAN = "True or False"
_LIMITS = "'max_tokens', 'freshness_sla', or a list of them"
_A_TEXT = "a text that UTF-8 can hold"


class _Checks(Checks):
    """The checks of a context or a retriever."""

    def checked_signature(self, function: Callable[..., Any]) -> inspect.Signature:
        """Return the signature; refuse parameters that no record can restore."""
        hints, signature = annotations_of(function), inspect.signature(function)
        for name, parameter in signature.parameters.items():
            for kind in _classes(hints.get(name)):
                self._check_restorable(name, kind)
            if parameter.default is not parameter.empty:
                try:
                    to_tagged(parameter.default)
                except RecordValueError as error:
                    raise self.error(f"the default of {name!r}: {error.problem}") from error
        return signature

    def _check_restorable(self, name: str, kind: type) -> None:
        for unsupported, alternative in _ALTERNATIVES.items():
            if issubclass(kind, unsupported) and kind is not tuple:
                raise self.error(
                    f"parameter {name!r} is a {kind.__qualname__}, which records do not support; "
                    f"{alternative}"
                )


def _check_called_with_store(
    decorator: Callable[..., Any], store: object, positional: tuple[object, ...]
) -> None:
    """Refuse a decorator that was written without its store or without parentheses."""
    name = decorator.__name__
    problem = None
    if inspect.isfunction(store):
        problem = f"@{name} needs the store; write @{name}(store) or @store.{name}()"
    elif positional:
        problem = f"@store.{name} needs parentheses, and options by name; write @store.{name}()"
    if problem is not None:
        raise DeclarationError(problem, location_of_frame(calling_frame()))


def annotations_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a function; none if they name types of a type checker only."""
    try:
        return get_type_hints(inspect.unwrap(function))
    except (NameError, TypeError):
        return {}


def _classes(hint: object) -> Iterator[type]:
    """Return the classes that an annotation names, at any depth."""
    inner = get_args(hint)
    for each in inner:
        yield from _classes(each)
    if isinstance(hint, type) and not inner:
        yield hint


def _is_async(function: Callable[..., Any]) -> bool:
    """Return whether a function, or the function that it wraps, is async."""
    return any(
        inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each)
        for each in (function, inspect.unwrap(function))
    )


def _empty() -> None: ...


async def _async_empty() -> None: ...


def _is_empty(function: Callable[..., Any]) -> bool:
    """Return whether a function has nothing but a docstring, ``...`` or ``pass``."""
    inner = inspect.unwrap(function)
    return inspect.isfunction(inner) and _instructions(inner) in (
        _instructions(_empty),
        _instructions(_async_empty),
    )


def _instructions(function: Callable[..., Any]) -> list[tuple[str, Any]]:
    # A NOP only marks the line of a statement that does nothing.
    steps = dis.get_instructions(function)
    return [(step.opname, step.argval) for step in steps if step.opname != "NOP"]


def _source_hash(function: Callable[..., Any]) -> str | None:
    """Return the hash of a function's source; None without source, as in some notebooks."""
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        return None
    return f"sha256:{sha256(source.encode()).hexdigest()}"
