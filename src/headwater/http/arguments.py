"""The arguments of a context as a request brings them: JSON, in the types that it annotates."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

import msgspec

from headwater.contexts import ContextDef
from headwater.errors import closest
from headwater.http.problems import FieldError

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
# Every context takes it, whether its function does or not.
_ALWAYS = "interaction_ref"


def arguments_of(definition: ContextDef, params: Mapping[str, Any]) -> dict[str, Any]:
    """The given parameters as the context's function takes them, or an error that names one."""
    declared = definition.signature.parameters.values()
    known = [parameter.name for parameter in declared if parameter.kind in _NAMED]
    if all(parameter.kind is not inspect.Parameter.VAR_KEYWORD for parameter in declared):
        for name in params:
            _refuse_unknown(definition, name, known)
    for parameter in declared:
        needed = parameter.kind in _NAMED and parameter.default is parameter.empty
        if needed and parameter.name not in params:
            raise FieldError(
                f"context {definition.name!r} needs the parameter {parameter.name!r}",
                _field(parameter.name),
            )
    hints = annotations_of(definition.function)
    return {name: _typed(value, hints.get(name, Any), name) for name, value in params.items()}


def annotations_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function; none where they name what exists for a type checker alone."""
    try:
        return get_type_hints(inspect.unwrap(function))
    except (NameError, TypeError):
        return {}


def _refuse_unknown(definition: ContextDef, name: str, known: list[str]) -> None:
    if name in known or name == _ALWAYS:
        return
    near = closest(name, known)
    there = f"there is {', '.join(known)}" if known else "it takes none"
    hint = f"did you mean {near!r}?" if near else there
    raise FieldError(
        f"context {definition.name!r} has no parameter {name!r}; {hint}", _field(name), near
    )


def _typed(value: Any, kind: Any, name: str) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise FieldError(f"parameter {name!r}: {error}", _field(name)) from error
    except TypeError:
        # An annotation that says nothing about JSON, such as a protocol.
        return value


def _field(name: str) -> str:
    return f"params.{name}"
