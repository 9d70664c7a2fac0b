"""Conversion of named parameters to the arguments of a context or a retriever.

Calls by name, over HTTP and on the command line convert and check them in the same way.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from headwater.core.codec import with_defaults
from headwater.declarations.contexts import ContextDef, reference
from headwater.declarations.function_checks import annotations_of
from headwater.declarations.retrievers import RetrieverDef
from headwater.errors import FieldError
from headwater.model.contexts import Overrides

_REFERENCE = "interaction_ref"

# One spelling for each number, as for ids, and at most 64 bits.
_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,18}")


def bind_parameters(
    definition: ContextDef, params: Mapping[str, Any], overrides: Overrides
) -> tuple[inspect.BoundArguments, Overrides]:
    """Return the arguments of a call by name, and its options with the interaction reference.

    Raises:
        FieldError: A parameter is missing, unknown or of another type than annotated.
    """
    # Every context accepts a reference; a function with a parameter of that name receives it.
    inside, outside = dict(params), overrides.interaction_ref
    if _REFERENCE in inside and outside is not msgspec.UNSET:
        raise FieldError(
            f"{_REFERENCE} occurs twice, in the params and outside them; give it once", _REFERENCE
        )
    given = inside.pop(_REFERENCE, outside)
    if _REFERENCE in definition.signature.parameters and given not in (None, msgspec.UNSET):
        inside[_REFERENCE] = given
    bound = bind_named("context", definition, inside)
    if given is not msgspec.UNSET:
        overrides = msgspec.structs.replace(overrides, interaction_ref=reference(given))
    return bound, overrides


def bind_named(
    kind_of: Literal["context", "retriever"],
    definition: ContextDef | RetrieverDef,
    params: Mapping[str, Any],
) -> inspect.BoundArguments:
    """Return the arguments for a declared function; raise FieldError for an invalid one."""
    declared, signature = f"{kind_of} {definition.name!r}", definition.signature
    takes_all = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    for name in params if not takes_all else ():
        if name not in signature.parameters:
            names = [*signature.parameters]
            raise FieldError.unknown(f"{declared} has no parameter", name, names, _field(name))
    kinds = annotations_of(definition.function)
    rest = dict(params)
    arguments: dict[str, Any] = {}
    for name, parameter in signature.parameters.items():
        kind = kinds.get(name, Any)
        if parameter.kind is parameter.VAR_KEYWORD:
            arguments[name] = {other: _typed(value, kind, other) for other, value in rest.items()}
        elif name not in rest:
            is_optional = parameter.kind is parameter.VAR_POSITIONAL
            if parameter.default is parameter.empty and not is_optional:
                raise FieldError(f"{declared} needs the parameter {name!r}", _field(name))
        elif parameter.kind is parameter.VAR_POSITIONAL:
            several = _typed(rest.pop(name), list[Any], name)
            arguments[name] = tuple(_typed(value, kind, name) for value in several)
        else:
            arguments[name] = _typed(rest.pop(name), kind, name)
    bound = inspect.BoundArguments(signature, arguments)
    bound.apply_defaults()
    return bound


def _typed(value: Any, kind: Any, name: str) -> Any:
    try:
        return with_defaults(msgspec.convert(value, kind))
    except msgspec.ValidationError as error:
        if (number := _whole_number(value, kind)) is not None:
            return number
        raise FieldError(f"parameter {name!r}: {error}", _field(name)) from error
    except TypeError:
        # The annotation has no JSON form, for example a protocol.
        return value


def _whole_number(value: Any, kind: Any) -> int | None:
    """Return the number in a text where a number is annotated: ids are text in other requests."""
    if type(value) is not str or not _WHOLE_NUMBER.fullmatch(value):
        return None
    try:
        number = msgspec.convert(int(value), kind)
    except msgspec.ValidationError:
        return None
    return number if type(number) is int else None


def _field(name: str) -> str:
    return f"params.{name}"
