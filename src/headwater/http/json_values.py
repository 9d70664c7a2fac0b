"""Values as JSON: what JSON cannot say stands in the tags that records use."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any, get_args, get_type_hints

import msgspec

from headwater.core.canonical_json import to_tagged


def plain(value: Any) -> Any:
    """A value that any reader of JSON gets whole: a function may be called with any other."""
    match value:
        case msgspec.Struct():
            return _plain_struct(value)
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


def _plain_struct(value: msgspec.Struct) -> msgspec.Struct:
    free = {name: getattr(value, name) for name in _free(type(value))}
    changed = {name: told for name, item in free.items() if (told := plain(item)) is not item}
    return msgspec.structs.replace(value, **changed) if changed else value


_known: dict[type[msgspec.Struct], tuple[str, ...]] = {}


def _free(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """The fields that may hold what JSON cannot say; a long list of the others is left alone."""
    if kind not in _known:
        # All, for as long as they are looked through: a kind may hold others of its own.
        _known[kind] = kind.__struct_fields__
        _known[kind] = tuple(_found(kind))
    return _known[kind]


def _found(kind: type[msgspec.Struct]) -> Iterator[str]:
    try:
        hints = get_type_hints(kind)
    except NameError:
        hints = {}  # those of a user may name what exists for a type checker alone
    for name in kind.__struct_fields__:
        if _may_hold_any(hints.get(name, Any)):
            yield name


def _may_hold_any(hint: Any) -> bool:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return bool(_free(hint))
    free = hint in (Any, float) or dataclasses.is_dataclass(hint)
    return free or any(map(_may_hold_any, get_args(hint)))
