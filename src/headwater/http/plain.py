"""Values as JSON: what JSON cannot say stands in the tags that records use."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

import msgspec

from headwater.canonical import to_tagged


def plain(value: Any) -> Any:
    """A value that any reader of JSON gets whole; a function may be called with any other."""
    match value:
        case float() if not isfinite(value):
            return to_tagged(value)
        case msgspec.Struct():
            names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
            return {written: plain(getattr(value, name)) for written, name in names}
        case Mapping() if all(isinstance(key, str) for key in value):
            return {key: plain(item) for key, item in value.items()}
        case Mapping():
            return to_tagged(value)
        case list() | tuple():
            return [plain(item) for item in value]
    return value
