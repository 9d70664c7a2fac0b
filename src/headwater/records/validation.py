"""Find the invalid value of a core that could not be encoded, field by field."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from headwater.core.canonical_json import LARGEST, child, to_tagged
from headwater.errors import RecordValueError
from headwater.records.core import Commitment, Exact

# A time of a whole second is written as text: the encoder would omit its zeros.
_LEAVES: dict[Any, tuple[type, ...]] = {str: (str,), bool: (bool,), datetime: (datetime, str)}


def is_leaf(annotation: Any) -> bool:
    """Return True if fields of this annotation need no commitment; float and int are excluded."""
    return annotation in _LEAVES or get_origin(annotation) is Literal


def explain_invalid(annotation: Any, value: Any, pointer: str = "") -> None:
    """Raise `RecordValueError` for the first value that does not match its annotation exactly."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        if value is not None:
            explain_invalid(
                next(kind for kind in arguments if kind is not NoneType), value, pointer
            )
    elif origin in _CONTAINERS:
        for key, item in _CONTAINERS[origin](value):
            explain_invalid(arguments[-1 if origin is dict else 0], item, child(pointer, key))
    elif isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        _check_type(annotation, value, pointer)
        for name, hint in get_type_hints(annotation, include_extras=True).items():
            explain_invalid(hint, getattr(value, name), child(pointer, name))
    else:
        _check_leaf(annotation, value, pointer)


_CONTAINERS: dict[Any, Callable[[Any], Iterable[tuple[Any, Any]]]] = {
    tuple: enumerate,
    dict: dict.items,
}


def _check_type(kind: type, value: Any, pointer: str) -> None:
    if type(value) is not kind:
        raise RecordValueError(pointer, f"a {kind.__name__} belongs here, not {value!r}")


def _check_leaf(annotation: Any, value: Any, pointer: str) -> None:
    if not _is_valid(annotation, value):
        raise RecordValueError(
            pointer,
            f"{value!r} is not valid in this field of a record; use text, booleans and integers "
            "within ±(2^53-1), as the field declares",
        )
    if type(value) is str:
        to_tagged(value, pointer)  # raises for lone surrogates


def _is_valid(annotation: Any, value: Any) -> bool:
    origin = get_origin(annotation)
    if origin is Literal:
        return value in get_args(annotation)
    if origin is not Annotated:
        return type(value) in _LEAVES[annotation]
    if annotation == Exact:
        return type(value) is int and abs(value) <= LARGEST
    return type(value) in (Commitment, dict)
