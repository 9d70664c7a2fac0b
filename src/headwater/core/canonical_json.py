"""Canonical JSON (RFC 8785), with tags for values that JSON cannot express.

The JSON is a subset that every parser reads the same way: no floats, integers within ±(2^53-1),
no lone surrogates, no duplicate keys. Every other supported type has a tag, such as
``{"$decimal": "1.10"}``; unsupported types are refused, never coerced.
"""

from __future__ import annotations

import dataclasses
import json
import re
from base64 import urlsafe_b64decode
from binascii import b2a_base64
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum
from types import NoneType
from typing import Any, NoReturn
from uuid import UUID

import msgspec

from headwater.errors import RecordValueError

LARGEST = 2**53 - 1
"""The largest integer that every JSON parser keeps exact."""

DEEPEST = 64
"""The maximum nesting depth of a value."""

DEEPEST_TEXT = 256
"""The maximum nesting depth of a JSON text: tagged values are deeper than plain ones."""

_TOO_DEEP = f"it is nested deeper than {DEEPEST_TEXT} levels"
_URLSAFE = bytes.maketrans(b"+/", b"-_")
_MICROSECOND = timedelta(microseconds=1)
_EXACT = range(-LARGEST, LARGEST + 1)
_ENCODE_SORTED = msgspec.json.Encoder(order="sorted").encode
_ENCODE = msgspec.json.Encoder().encode
_BEYOND_16_BITS = re.compile(rb"[\xf0-\xf4]")
_LAST_OF_16_BITS = re.compile(rb"[\xee\xef]")


class JsonError(ValueError):
    """A text outside the JSON subset."""


def canonical(value: Any) -> bytes:
    """Return the RFC 8785 text of a result of `to_tagged` or `parse`, or of Structs of them."""
    text = _ENCODE_SORTED(value)
    # RFC 8785 orders keys by UTF-16. That is the order of UTF-8, except between a character that
    # takes two UTF-16 units and one from U+E000 to U+FFFF.
    if text.isascii() or not (_BEYOND_16_BITS.search(text) and _LAST_OF_16_BITS.search(text)):
        return text
    return _ENCODE(_by_utf16(msgspec.to_builtins(value)))


def _by_utf16(value: Any) -> Any:
    """Return a copy with all keys in the order of UTF-16; any depth, without recursion."""
    root = [value]
    waiting: list[tuple[Any, Any]] = [(root, 0)]
    while waiting:
        parent, place = waiting.pop()
        item = parent[place]
        if isinstance(item, dict):
            parent[place] = copy = {key: item[key] for key in sorted(item, key=_utf16)}
            waiting.extend((copy, key) for key in copy)
        elif isinstance(item, list | tuple):
            parent[place] = items = list(item)
            waiting.extend((items, at) for at in range(len(items)))
    return root[0]


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be")


def parse(text: bytes | str) -> Any:
    """Parse a JSON text of the subset; raise JsonError where parsers could disagree."""
    try:
        value = json.loads(
            text.decode() if isinstance(text, bytes) else text,
            object_pairs_hook=_object,
            parse_float=_check_number,
            parse_constant=_check_number,
            parse_int=_integer,
        )
        _ENCODE(value)
        _check_json_depth(value, DEEPEST_TEXT)
    except UnicodeDecodeError as error:
        raise JsonError(f"byte {error.start} is not UTF-8") from error
    except UnicodeEncodeError as error:
        raise JsonError("a lone surrogate is not a character") from error
    except json.JSONDecodeError as error:
        raise JsonError(f"{error.msg} at character {error.pos}") from error
    except RecursionError as error:
        raise JsonError(_TOO_DEEP) from error
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise JsonError(f"the key {counts.most_common(1)[0][0]!r} occurs twice")
    return members


def _check_json_depth(value: Any, levels: int) -> None:
    level = [value]
    while containers := [item for item in level if isinstance(item, dict | list)]:
        if not levels:
            raise JsonError(_TOO_DEEP)
        levels -= 1
        level = [
            item
            for container in containers
            for item in (container.values() if isinstance(container, dict) else container)
        ]


def _check_number(text: str) -> NoReturn:
    raise JsonError(f"the number {text} is not an integer")


def _integer(text: str) -> int:
    # Check the length first: Python refuses to parse an integer of very many digits.
    if len(text) > 17 or text == "-0" or int(text) not in _EXACT:
        raise JsonError(f"the number {text[:24]} is not exact in every parser")
    return int(text)


def to_base64(raw: bytes) -> str:
    """Encode as base64url without padding."""
    return b2a_base64(raw, newline=False).translate(_URLSAFE, b"=").decode()


def from_base64(text: str) -> bytes:
    """Decode base64url without padding; raise ValueError unless `to_base64` gives the text."""
    raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if to_base64(raw) != text:
        raise ValueError("invalid base64url without padding")
    return raw


def child(pointer: str, key: str | int) -> str:
    """Return the RFC 6901 pointer of a member or an element."""
    if isinstance(key, str) and ("~" in key or "/" in key):
        key = key.replace("~", "~0").replace("/", "~1")
    return f"{pointer}/{key}"


def to_tagged(value: object, pointer: str = "") -> Any:
    """Return the value in the JSON subset; errors name the pointer."""
    return _tag(value, pointer, 0)


_Tagger = Callable[[Any, str, int], Any]


def _tag(value: object, pointer: str, depth: int) -> Any:
    tagger = _TAGGERS.get(type(value))
    if tagger is not None:
        return tagger(value, pointer, depth)
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.asdict(value).items()
        present = {name: item for name, item in fields if item is not msgspec.UNSET}
        return _tag_dict(present, pointer, depth)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _tag_dict(_fields(value), pointer, depth)
    raise RecordValueError(pointer, _explain_unsupported(value))


def _fields(value: Any) -> dict[str, object]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def _explain_unsupported(value: object) -> str:
    kind = type(value)
    if isinstance(value, Enum):
        return f"{kind.__qualname__} is an Enum, which records do not support; pass its .value"
    for base in _TAGGERS:
        if issubclass(kind, base):
            return (
                f"{kind.__module__}.{kind.__qualname__} is a subclass of {base.__name__}, which "
                f"records do not support; convert it to a plain {base.__name__}"
            )
    return (
        f"records do not support the type {kind.__module__}.{kind.__qualname__}; pass text, "
        "numbers, dates, bytes, lists, dicts, dataclasses or Structs of them"
    )


def _tag_unchanged(value: Any, pointer: str, depth: int) -> Any:
    return value


def _tag_str(value: str, pointer: str, depth: int) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise RecordValueError(
                pointer,
                f"character {error.start} is a lone surrogate, which UTF-8 cannot encode; "
                "decode the text with errors='replace'",
            ) from error
    return value


def _tag_int(value: int, pointer: str, depth: int) -> Any:
    if value in _EXACT:
        return value
    try:
        return {"$int": str(value)}
    except ValueError as error:
        raise RecordValueError(pointer, f"the integer is too long: {error}") from error


_FLOAT_TEXTS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _tag_float(value: float, pointer: str, depth: int) -> Any:
    text = repr(value)
    return {"$float": _FLOAT_TEXTS.get(text, text)}


def _tag_datetime(value: datetime, pointer: str, depth: int) -> Any:
    if value.utcoffset() is None:
        raise RecordValueError(
            pointer, "a datetime without a time zone is ambiguous; add one, such as UTC"
        )
    return {"$datetime": value.isoformat()}


def _tag_dict(value: dict[Any, Any], pointer: str, depth: int) -> Any:
    _check_depth(pointer, depth)
    if all(type(key) is str and not key.startswith("$") for key in value):
        return {
            _tag_str(key, pointer, depth): _tag(item, child(pointer, key), depth + 1)
            for key, item in value.items()
        }
    pairs = (
        [_tag_key(key, pointer, depth), _tag(item, child(pointer, str(key)), depth + 1)]
        for key, item in value.items()
    )
    return {"$map": sorted(pairs, key=canonical)}


def _tag_list(value: Iterable[Any], pointer: str, depth: int) -> list[Any]:
    _check_depth(pointer, depth)
    return [_tag(item, child(pointer, at), depth + 1) for at, item in enumerate(value)]


def _tag_members(value: Iterable[Any], pointer: str, depth: int) -> list[Any]:
    _check_depth(pointer, depth)
    return sorted((_tag_key(item, pointer, depth) for item in value), key=canonical)


def _tag_key(value: Any, pointer: str, depth: int) -> Any:
    """Tag a dict key or a set member; refuse a value that would be unhashable when read."""
    tagged = _tag(value, pointer, depth + 1)
    try:
        hash(_untag(tagged))
    except TypeError as error:
        raise RecordValueError(
            pointer,
            f"a {type(value).__qualname__} is not hashable when read from a record; use text, "
            "numbers or tuples of them as dict keys and set members",
        ) from error
    return tagged


def _check_depth(pointer: str, depth: int) -> None:
    if depth >= DEEPEST:
        raise RecordValueError(
            pointer, f"it is nested deeper than {DEEPEST} levels, or contains itself; flatten it"
        )


def _tagged_items(tag: str, items: _Tagger) -> _Tagger:
    return lambda value, pointer, depth: {tag: items(value, pointer, depth)}


def _tagged_text(tag: str, text: Callable[[Any], str]) -> _Tagger:
    return lambda value, pointer, depth: {tag: text(value)}


_TAGGERS: dict[type, _Tagger] = {
    NoneType: _tag_unchanged,
    bool: _tag_unchanged,
    str: _tag_str,
    int: _tag_int,
    float: _tag_float,
    dict: _tag_dict,
    list: _tag_list,
    tuple: _tagged_items("$tuple", _tag_list),
    set: _tagged_items("$set", _tag_members),
    frozenset: _tagged_items("$frozenset", _tag_members),
    datetime: _tag_datetime,
    date: _tagged_text("$date", date.isoformat),
    timedelta: _tagged_text("$duration_us", lambda value: str(value // _MICROSECOND)),
    Decimal: _tagged_text("$decimal", str),
    UUID: _tagged_text("$uuid", str),
    bytes: _tagged_text("$bytes", to_base64),
}


# Raised by the untaggers below for content that is invalid or not text.
_UNTAG_ERRORS = (
    ValueError,
    TypeError,
    AttributeError,
    KeyError,
    OverflowError,
    InvalidOperation,
    RecursionError,
)


def from_tagged(tagged: Any, pointer: str = "") -> Any:
    """Return the value of a tagged one; refuse a form that `to_tagged` would not write."""
    if type(tagged) is str:
        return tagged
    try:
        value = _untag(tagged)
        is_canonical = canonical(to_tagged(value, pointer)) == canonical(tagged)
    except _UNTAG_ERRORS as error:
        raise RecordValueError(pointer, f"it is not a valid CRS-001 value: {error!r}") from error
    if not is_canonical:
        raise RecordValueError(pointer, "it is not a valid CRS-001 value: not in canonical form")
    return value


def _untag(tagged: Any) -> Any:
    if isinstance(tagged, list):
        return [_untag(item) for item in tagged]
    if not isinstance(tagged, dict):
        return tagged
    if len(tagged) == 1:
        [(tag, content)] = tagged.items()
        if tag.startswith("$"):
            return _UNTAGGERS[tag](content)
    return {key: _untag(item) for key, item in tagged.items()}


def _untag_map(pairs: Any) -> dict[Any, Any]:
    return {_untag(key): _untag(item) for key, item in pairs}


_UNTAGGERS: dict[str, Callable[[Any], Any]] = {
    "$int": int,
    "$float": float,
    "$decimal": Decimal,
    "$datetime": datetime.fromisoformat,
    "$date": date.fromisoformat,
    "$duration_us": lambda text: int(text) * _MICROSECOND,
    "$bytes": from_base64,
    "$uuid": UUID,
    "$map": _untag_map,
    "$tuple": lambda items: tuple(map(_untag, items)),
    "$set": lambda items: set(map(_untag, items)),
    "$frozenset": lambda items: frozenset(map(_untag, items)),
}
