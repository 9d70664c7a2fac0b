"""The arguments of a context as a request brings them: JSON, in the types that it annotates."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from headwater.declarations import ContextDef, annotations_of
from headwater.errors.hints import closest
from headwater.http.request_errors import FieldError

_REFERENCE = "interaction_ref"

# Spelled in one way alone, as ids are, and no longer than 64 bits.
_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,18}")

_Reference = Any | msgspec.UnsetType | None


def with_reference(
    definition: ContextDef, params: Mapping[str, Any], beside: _Reference
) -> tuple[dict[str, Any], _Reference]:
    """The parameters and the interaction's reference, which may be one of them or stand beside.

    Every context takes one; the function gets it where it has a parameter of that name.
    """
    given = dict(params)
    if _REFERENCE in given and beside is not msgspec.UNSET:
        raise FieldError(
            f"{_REFERENCE} is given twice, among the params and beside them; give it once",
            _REFERENCE,
        )
    reference = given.pop(_REFERENCE, beside)
    if _REFERENCE in definition.signature.parameters and reference not in (None, msgspec.UNSET):
        given[_REFERENCE] = reference
    return given, reference


def arguments_of(definition: ContextDef, params: Mapping[str, Any]) -> inspect.BoundArguments:
    """The given parameters as the context's function takes them, or an error that names one."""
    _check_known(definition, params)
    kinds = annotations_of(definition.function)
    rest = dict(params)
    given: dict[str, Any] = {}
    for name, parameter in definition.signature.parameters.items():
        kind = kinds.get(name, Any)
        if parameter.kind is parameter.VAR_KEYWORD:
            given[name] = {other: _typed(value, kind, other) for other, value in rest.items()}
        elif name not in rest:
            _check_complete(definition, parameter)
        elif parameter.kind is parameter.VAR_POSITIONAL:
            several = _typed(rest.pop(name), list[Any], name)
            given[name] = tuple(_typed(value, kind, name) for value in several)
        else:
            given[name] = _typed(rest.pop(name), kind, name)
    bound = inspect.BoundArguments(definition.signature, given)
    bound.apply_defaults()
    return bound


def _check_known(definition: ContextDef, params: Mapping[str, Any]) -> None:
    declared = definition.signature.parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in declared):
        return
    known = [parameter.name for parameter in declared]
    for name in params:
        if name not in known:
            near = closest(name, known)
            there = f"there is {', '.join(known)}" if known else "it takes none"
            hint = f"did you mean {near!r}?" if near else there
            raise FieldError(
                f"context {definition.name!r} has no parameter {name!r}; {hint}", _field(name), near
            )


def _check_complete(definition: ContextDef, parameter: inspect.Parameter) -> None:
    if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL:
        raise FieldError(
            f"context {definition.name!r} needs the parameter {parameter.name!r}",
            _field(parameter.name),
        )


def _typed(value: Any, kind: Any, name: str) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        if (number := _whole_number(value, kind)) is not None:
            return number
        raise FieldError(f"parameter {name!r}: {error}", _field(name)) from error
    except TypeError:
        # An annotation that says nothing about JSON, such as a protocol.
        return value


def _whole_number(value: Any, kind: Any) -> int | None:
    """The number that a text spells, where one is wanted: ids are text in all other requests."""
    if type(value) is not str or not _WHOLE_NUMBER.fullmatch(value):
        return None
    try:
        number = msgspec.convert(int(value), kind)
    except msgspec.ValidationError:
        return None
    return number if type(number) is int else None


def _field(name: str) -> str:
    return f"params.{name}"
