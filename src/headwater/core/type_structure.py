"""The structure of an annotated type: everything that its JSON form depends on."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.inspect import (
    CustomType,
    DataclassType,
    EnumType,
    Field,
    Metadata,
    NamedTupleType,
    StructType,
    Type,
    TypedDictType,
    type_info,
)

from headwater.core.codec import PydanticModel

_PROSE = {"title", "description", "default", "examples"}


def structure_of(annotation: Any) -> str:
    """Return a text that is equal for types with the same fields, in any module and by any name."""
    return repr(_describe(type_info(annotation), ()))


def _describe(part: object, outer: tuple[int, ...]) -> object:
    if id(part) in outer:
        return f"the type {len(outer) - outer.index(id(part))} levels outside"
    match part:
        case tuple():
            return [_describe(inner, outer) for inner in part]
        case Field():
            return [part.encode_name, part.required, _describe(part.type, outer)]
        case Metadata():
            return _describe(part.type, outer)
        case EnumType():
            return ["enum", sorted(repr(member.value) for member in part.cls)]
        case CustomType():
            return _custom(part.cls)
        case Type():
            return _describe_parts(part, (*outer, id(part)))
    return part


def _describe_parts(part: Type, outer: tuple[int, ...]) -> object:
    described = {
        name: _describe(value, outer)
        for name, value in msgspec.structs.asdict(part).items()
        if name not in ("cls", "fields")
    }
    if isinstance(part, StructType | DataclassType | TypedDictType | NamedTupleType):
        fields = [_describe(field, outer) for field in part.fields]
        described["fields"] = sorted(fields, key=repr) if _is_unordered(part) else fields
    return [type(part).__name__, described]


def _is_unordered(part: Type) -> bool:
    if isinstance(part, StructType):
        return not part.array_like
    return isinstance(part, DataclassType | TypedDictType)


def _custom(kind: type) -> object:
    if issubclass(kind, PydanticModel):
        try:
            return _without_prose(kind.model_json_schema())
        except TypeError:  # a part of the model has no schema
            pass
    return kind.__name__


def _without_prose(schema: object) -> object:
    """Return a JSON schema without texts for readers; a dict under such a name is a property."""
    if isinstance(schema, dict):
        return {
            name: _without_prose(part)
            for name, part in sorted(schema.items())
            if name not in _PROSE or isinstance(part, dict)
        }
    return [_without_prose(part) for part in schema] if isinstance(schema, list) else schema
