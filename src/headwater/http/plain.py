"""Values as JSON: what JSON cannot say stands in the tags that records use."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import isfinite
from typing import Any, get_args, get_type_hints

import msgspec

from headwater.canonical import to_tagged


def plain(value: Any) -> Any:
    """A value that any reader of JSON gets whole: a function may be called with any other."""
    match value:
        case msgspec.Struct():
            free = {name: plain(getattr(value, name)) for name in _free(type(value))}
            return msgspec.structs.replace(value, **free) if free else value
        case float() if not isfinite(value):
            return to_tagged(value)
        case Mapping() if all(isinstance(key, str) for key in value):
            return {key: plain(item) for key, item in value.items()}
        case Mapping():
            return to_tagged(value)
        case list() | tuple():
            return [plain(item) for item in value]
    return value


@cache
def _free(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """The fields that may hold any value at all; a long list of the others is left alone."""
    return tuple(name for name, hint in get_type_hints(kind).items() if _may_hold_any(hint))


def _may_hold_any(hint: Any) -> bool:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return bool(_free(hint))
    return hint is Any or any(map(_may_hold_any, get_args(hint)))
