"""The checks of functions that are declared as contexts and retrievers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import time
from enum import Enum
from hashlib import sha256
from typing import Any, Protocol, get_args, get_type_hints

from headwater.core.canonical_json import to_tagged
from headwater.core.codec import PydanticModel
from headwater.declarations.checks import Checks, calling_frame, location_of_frame
from headwater.declarations.contexts import Assembles
from headwater.declarations.entity_decorator import Declares
from headwater.errors import DeclarationError, RecordValueError

_ALTERNATIVES: dict[type, str] = {
    Enum: "take the value of its member, annotated as a Literal such as Literal['red', 'blue']",
    time: "take a text such as '09:30', or a datetime",
    tuple: "take a plain tuple or a dataclass",
    PydanticModel: "take a dataclass, or the dict that its model_dump() returns",
}


class Runs(Declares, Assembles, Protocol):
    """A store's runtime, as the decorators need it."""


class FunctionChecks(Checks):
    """The checks of a context or a retriever."""

    def checked_signature(self, function: Callable[..., Any]) -> inspect.Signature:
        """Return the signature; refuse parameters that no record can restore."""
        hints, signature = annotations_of(function), inspect.signature(function)
        for name, parameter in signature.parameters.items():
            for kind in _classes(hints.get(name)):
                for unsupported, alternative in _ALTERNATIVES.items():
                    if issubclass(kind, unsupported) and kind is not tuple:
                        raise self.error(
                            f"parameter {name!r} is a {kind.__qualname__}, which records do not "
                            f"support; {alternative}"
                        )
            if parameter.default is not parameter.empty:
                try:
                    to_tagged(parameter.default)
                except RecordValueError as error:
                    raise self.error(f"the default of {name!r}: {error.problem}") from error
        return signature


def check_called_with_store(
    decorator: Callable[..., Any], store: object, positional: tuple[object, ...]
) -> None:
    """Refuse a decorator that was written without its store or without parentheses."""
    name, problem = decorator.__name__, None
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
    for nested in inner:
        yield from _classes(nested)
    if isinstance(hint, type) and not inner:
        yield hint


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether a function, the function that it wraps, or a callable object is async."""
    return any(
        inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called)
        for called in (function, inspect.unwrap(function), type(function).__call__)
    )


def source_hash(function: Callable[..., Any]) -> str | None:
    """Return the hash of a function's source; None without source, as in some notebooks."""
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        return None
    return f"sha256:{sha256(source.encode()).hexdigest()}"
