"""Values as JSON: values without a JSON form are tagged as in records."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from math import isfinite
from typing import Any, get_args, get_type_hints

import msgspec

from headwater.core.canonical_json import to_tagged


def plain(value: Any) -> Any:
    """Return a value in which everything without a JSON form is tagged."""
    match value:
        case msgspec.Struct():
            fields = {name: getattr(value, name) for name in _untyped_fields(type(value))}
            changed = {name: new for name, old in fields.items() if (new := plain(old)) is not old}
            return msgspec.structs.replace(value, **changed) if changed else value
        case float() if not isfinite(value):
            return to_tagged(value)
        case Mapping() if all(isinstance(key, str) for key in value):
            return {key: plain(item) for key, item in value.items()}
        case Mapping():
            return to_tagged(value)
        case list() | tuple() | set() | frozenset():
            return [plain(item) for item in value]
    if dataclasses.is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return value


def prepare(kind: type[msgspec.Struct]) -> None:
    """Look at the types of a struct's fields, as the first value of it would."""
    _untyped_fields(kind)


_fields_by_type: dict[type[msgspec.Struct], tuple[str, ...]] = {}


def _untyped_fields(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the fields that may hold values without a JSON form; others need no search."""
    if kind not in _fields_by_type:
        # All fields during the search, because a type may contain itself.
        fields = _fields_by_type[kind] = kind.__struct_fields__
        try:
            hints = get_type_hints(kind)
        except NameError:
            hints = {}  # annotations of users may name types that only type checkers import
        untyped = tuple([name for name in fields if _is_untyped(hints.get(name, Any))])
        _fields_by_type[kind] = untyped
    return _fields_by_type[kind]


def _is_untyped(hint: Any) -> bool:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return bool(_untyped_fields(hint))
    is_untyped = hint in (Any, float) or dataclasses.is_dataclass(hint)
    return is_untyped or any(map(_is_untyped, get_args(hint)))
