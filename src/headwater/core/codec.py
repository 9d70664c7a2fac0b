"""How a feature's value becomes JSON text and comes back in its annotated type.

One text serves the online store, history, the wire and the eye. A value is kept if, and only if,
its text decodes back to the annotated type; anything else is refused, never coerced.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin
from uuid import UUID

import msgspec

from headwater.errors import FeatureValueError

Kind = Literal["int", "float", "bool", "text", "time", "json", "none"]

_KINDS: dict[Any, Kind] = {
    int: "int",
    float: "float",
    bool: "bool",
    str: "text",
    datetime: "time",
    NoneType: "none",
}
_SAFE = frozenset({str, bool, NoneType})
_BUILTINS = (datetime, date, time, timedelta, Decimal, UUID, bytes)
_ENCODER = msgspec.json.Encoder()
_INT64 = range(-(2**63), 2**63)


class UnstorableError(ValueError):
    """A value has no exact JSON text; the message says why."""


def _from_numpy(value: object) -> object:
    if type(value).__module__ == "numpy":
        plain: object = value.tolist()  # type: ignore[attr-defined]
        return plain
    raise UnstorableError(f"a {type(value).__qualname__} has no JSON form")


def plain(value: object) -> Any:
    """The value in builtin types, refused where JSON would change it silently."""
    kind = type(value)
    if kind in _SAFE or (kind is float and math.isfinite(value)):  # type: ignore[arg-type]
        return value
    try:
        if kind is not int:
            value = msgspec.to_builtins(value, builtin_types=_BUILTINS, enc_hook=_from_numpy)
        _check(value)
    except (TypeError, OverflowError, RecursionError) as error:
        raise UnstorableError(str(error)) from error
    return value


_SHOWN = 60
_DEEPEST = 200
"""How deep values may be nested: as deep as every reader of JSON goes."""

_Check = Callable[[Any, int], None]


def _check(value: object, depth: int = 0) -> None:
    check = _CHECKS.get(type(value))
    if check is not None:
        check(value, depth)


def _check_float(value: float, _: int) -> None:
    if not math.isfinite(value):
        raise UnstorableError("NaN and infinities have no JSON form")


def _check_int(value: int, _: int) -> None:
    if value not in _INT64:
        raise UnstorableError("an integer beyond 64 bits is not exact in other readers")


def _check_datetime(value: datetime, _: int) -> None:
    if value.tzinfo is None:
        raise UnstorableError("a datetime without a time zone is ambiguous")


def _check_dict(value: dict[object, object], depth: int) -> None:
    for key in value:
        _check(key, depth)
    _check_items(value.values(), depth)


def _check_items(value: Iterable[object], depth: int) -> None:
    if depth == _DEEPEST:
        raise UnstorableError(f"it is nested more than {_DEEPEST} levels deep")
    for item in value:
        _check(item, depth + 1)


_CHECKS: dict[type, _Check] = {
    float: _check_float,
    int: _check_int,
    datetime: _check_datetime,
    dict: _check_dict,
    list: _check_items,
    tuple: _check_items,
    set: _check_items,
    frozenset: _check_items,
}


def encode_exact(value: object, decode: Callable[[bytes], Any]) -> bytes:
    """The value's JSON text, after proof that it decodes to the same value."""
    try:
        raw = _ENCODER.encode(plain(value))
        back = decode(raw)
    except (TypeError, UnicodeEncodeError, OverflowError, msgspec.ValidationError) as error:
        raise UnstorableError(str(error)) from error
    if back is not value and not _same(back, value):
        if repr(back) == repr(value):
            raise UnstorableError("what comes back looks the same, but is not equal: is it a NaN?")
        raise UnstorableError(f"it would come back as {reprlib.repr(back)}")
    return raw


def _same(back: object, value: object) -> bool:
    """Says whether what comes back is what went in; NumPy's types may become Python's own."""
    try:
        if bool(back == value):
            return True
    except ValueError:  # an array inside: NumPy does not say whether it is equal as a whole
        pass
    return _has_numpy(value)


def _has_numpy(value: object) -> bool:
    if type(value).__module__ == "numpy":
        return True
    if isinstance(value, dict):
        return any(map(_has_numpy, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_numpy, value))


def _bare(annotation: Any) -> Any:
    """The one type of ``T | None``, else the annotation itself."""
    if get_origin(annotation) in (Union, UnionType):
        members = [member for member in get_args(annotation) if member is not NoneType]
        if len(members) == 1:
            return members[0]
    return annotation


def _named(annotation: Any) -> str:
    """An annotation as people write it."""
    if annotation is NoneType:
        return "None"
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


class Codec:
    """Turns the values of one feature into JSON text and back."""

    __slots__ = ("_decode", "_simple", "annotation", "expected", "feature", "kind")

    def __init__(self, feature: str, annotation: Any) -> None:
        self.feature = feature
        self.annotation = annotation
        self.expected: str = _named(annotation)
        self.kind: Kind = _KINDS.get(_bare(annotation), "json")
        # Values of exactly these types come back as they went in, so that need not be proved.
        self._simple = annotation if annotation in (float, bool) else None
        self._decode: Callable[[bytes | msgspec.Raw], Any] = msgspec.json.Decoder(annotation).decode

    def encode(self, value: object) -> bytes:
        """The value's JSON text, after proof that it decodes to the same value."""
        if type(value) is self._simple and math.isfinite(value):  # type: ignore[arg-type]
            return _ENCODER.encode(value)
        try:
            return encode_exact(value, self._decode)
        except UnstorableError as error:
            raise FeatureValueError(
                self.feature,
                f"cannot keep {reprlib.repr(value)} as {self.expected}: {error}; return the "
                "annotated type or change the annotation",
            ) from error

    def decode(self, raw: bytes | msgspec.Raw) -> Any:
        """The value in its annotated type."""
        try:
            return self._decode(raw)
        except msgspec.ValidationError as error:
            # A stored value that an edited annotation no longer describes.
            text = bytes(raw)[:_SHOWN].decode(errors="replace")
            raise FeatureValueError(
                self.feature,
                f"was stored as {text}, which is no {self.expected}: {error}; change the "
                "annotation back, or give values of the new type to a feature of another name",
            ) from error
