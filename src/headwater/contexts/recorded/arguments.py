"""Recorded inputs as the arguments of a function, in the types that it annotates today."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec.inspect import (
    CollectionType,
    DataclassType,
    DictType,
    StructType,
    TupleType,
    Type,
    TypedDictType,
    UnionType,
    is_struct_type,
    type_info,
)

from headwater.core.canonical_json import to_tagged
from headwater.declarations.contexts import ContextDef
from headwater.declarations.function_checks import annotations_of
from headwater.errors import InvalidInputError, RecordValueError
from headwater.errors.hints import nearest


def bind_recorded(definition: ContextDef, inputs: Mapping[str, Any]) -> inspect.BoundArguments:
    """Bind the recorded inputs to the parameters that the function has today."""
    parameters = definition.signature.parameters
    for name in inputs:
        if name not in parameters:
            raise InvalidInputError(
                f"context {definition.name!r} was recorded with the input {name!r}, but its "
                f"function has no such parameter now; {nearest(name, parameters)}"
            )
    hints = annotations_of(definition.function)
    arguments = {
        name: _argument(definition, parameters[name], value, hints.get(name, Any))
        for name, value in inputs.items()
    }
    return inspect.BoundArguments(definition.signature, arguments)


def _argument(definition: ContextDef, parameter: inspect.Parameter, value: Any, hint: Any) -> Any:
    """Return a recorded input in the type that its parameter annotates today."""
    kind = hint
    if parameter.kind is parameter.VAR_POSITIONAL:
        kind = tuple[hint, ...]
    elif parameter.kind is parameter.VAR_KEYWORD:
        kind = dict[str, hint]
    try:
        return _convert(value, kind)
    except _MismatchError as mismatch:
        if not _has_fields(value, kind):
            return value  # the call did not follow the annotation
        raise InvalidInputError(
            f"context {definition.name!r} was recorded with {parameter.name!r} of the fields "
            f"{', '.join(map(str, value))}, which do not fit today's {kind.__name__}: "
            f"{_explain(value, kind, mismatch)}"
        ) from mismatch


class _MismatchError(Exception):
    """A recorded value does not fit a type as it is declared today."""


def _convert(value: Any, kind: Any) -> Any:
    """Convert a recorded value to a type; raise _MismatchError if it would change."""
    try:
        today = type_info(kind)
    except TypeError as error:
        return _convert_to_member(value, get_args(kind), str(error))
    try:
        form = _with_objects(value, today)
        typed = _in_containers(value, msgspec.convert(form, kind, from_attributes=True))
        if _includes(to_tagged(typed), to_tagged(value)):
            return typed
    except (msgspec.ValidationError, TypeError, RecordValueError) as error:
        raise _MismatchError(str(error)) from error
    raise _MismatchError("a value would change")


def _convert_to_member(value: Any, members: Sequence[Any], reason: str) -> Any:
    """Convert to the one member of a union that fits; msgspec has no unions of several classes."""
    fitting = []
    for member in members:
        if _has_fields(value, member):
            with suppress(_MismatchError):
                fitting.append(_convert(value, member))
    exact = [typed for typed in fitting if to_tagged(typed) == to_tagged(value)]
    for found in (fitting, exact):
        if len(found) == 1:
            return found[0]
    raise _MismatchError(reason)


def _explain(value: Mapping[str, Any], kind: Any, mismatch: _MismatchError) -> str:
    """Return which recorded field does not fit a type, and the remedy."""
    today = type_info(kind)
    assert isinstance(today, StructType | DataclassType)
    hints = get_type_hints(kind)
    gone = [name for name in value if name not in hints]
    if gone:
        return f"it has no field {gone[0]!r} now; add it again"
    new = [field.name for field in today.fields if field.required and field.name not in value]
    if new:
        return f"it requires {new[0]!r}, which was not recorded; give it a default"
    for name, item in value.items():
        try:
            _convert(item, hints[name])
        except _MismatchError as field_mismatch:
            return _explain_field(name, item, hints[name], field_mismatch)
    return f"{mismatch}; accept the recorded values again"


def _explain_field(name: str, value: Any, kind: Any, mismatch: _MismatchError) -> str:
    if _has_fields(value, kind):
        return f"in {name!r}, {_explain(value, kind, mismatch)}"
    today = kind.__name__ if isinstance(kind, type) else kind
    return f"{name!r} was recorded as {type(value).__name__} and is {today} now; accept both types"


def _has_fields(value: Any, kind: Any) -> bool:
    return isinstance(value, dict) and (is_struct_type(kind) or is_dataclass(kind))


def _with_objects(value: Any, kind: Type) -> Any:
    """Return a recorded value with objects instead of dicts wherever its type has fields.

    A record has the fields of an object by their Python names, not by their JSON names, and without
    the tag that tells the Structs of a union apart.
    """
    if isinstance(kind, UnionType):
        kinds = [member for member in kind.types if _has_form(value, member)]
        exact = [member for member in kinds if _is_exact(value, member)]
        for found in (kinds, exact):
            if len(found) == 1:
                return _with_objects(value, found[0])
        return value
    if isinstance(value, dict):
        return _dict_with_objects(value, kind)
    if isinstance(kind, TupleType) and isinstance(value, list | tuple):
        if len(value) != len(kind.item_types):
            return value
        return type(value)(map(_with_objects, value, kind.item_types))
    if isinstance(kind, CollectionType) and isinstance(value, list | tuple):
        return type(value)(_with_objects(item, kind.item_type) for item in value)
    return value


def _dict_with_objects(value: dict[Any, Any], kind: Type) -> Any:
    if isinstance(kind, DictType):
        return {key: _with_objects(item, kind.value_type) for key, item in value.items()}
    if not isinstance(kind, StructType | DataclassType | TypedDictType):
        return value
    kinds = {field.name: field.type for field in kind.fields}
    items = {
        name: _with_objects(item, kinds[name]) if name in kinds else item
        for name, item in value.items()
    }
    if isinstance(kind, TypedDictType):
        return items
    tag = {kind.tag_field: kind.tag} if isinstance(kind, StructType) and kind.tag_field else {}
    return SimpleNamespace(**tag | items)


def _has_form(value: Any, kind: Type) -> bool:
    """Return whether a value may be of a type, as far as its fields tell."""
    if isinstance(value, dict):
        if isinstance(kind, StructType | DataclassType):
            names = {field.name for field in kind.fields}
            return names.issuperset(value) and all(
                field.name in value for field in kind.fields if field.required
            )
        return isinstance(kind, DictType | TypedDictType)
    return isinstance(kind, CollectionType | TupleType)


def _is_exact(value: Any, kind: Type) -> bool:
    return isinstance(kind, StructType | DataclassType) and len(kind.fields) == len(value)


def _in_containers(value: Any, typed: Any) -> Any:
    """Return a converted value in the recorded containers: a Sequence may be a list or a tuple."""
    if isinstance(value, list | tuple) and isinstance(typed, list | tuple):
        return type(value)(map(_in_containers, value, typed))
    if isinstance(value, dict) and isinstance(typed, dict) and typed.keys() == value.keys():
        return {key: _in_containers(item, typed[key]) for key, item in value.items()}
    return typed


def _includes(typed: Any, recorded: Any) -> bool:
    """Return whether a value has everything that was recorded; 1 and 1.0 differ."""
    if isinstance(recorded, dict) and isinstance(typed, dict):
        return all(key in typed and _includes(typed[key], item) for key, item in recorded.items())
    if isinstance(recorded, list) and isinstance(typed, list):
        return len(typed) == len(recorded) and all(map(_includes, typed, recorded))
    return bool(typed == recorded)
