"""Feature values as JSON text, and back in their annotated type; the structure of such a type.

The online store, history and the wire hold the same text. A value is stored only if its text
decodes to an equal value of the annotated type; any other value is refused, never coerced.
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from types import NoneType, UnionType
from typing import Any, Literal, Protocol, TypeVar, Union, get_args, get_origin, runtime_checkable
from uuid import UUID

import msgspec
import msgspec.inspect
from msgspec import NODEFAULT
from msgspec.inspect import (
    CustomType,
    DataclassType,
    DictType,
    EnumType,
    Field,
    FloatType,
    IntType,
    Metadata,
    NamedTupleType,
    StructType,
    Type,
    TypedDictType,
    type_info,
)

from headwater.errors import FeatureValueError

T = TypeVar("T")

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

_KEYS = (
    msgspec.inspect.AnyType,
    msgspec.inspect.StrType,
    IntType,
    FloatType,
    msgspec.inspect.EnumType,
    msgspec.inspect.LiteralType,
    msgspec.inspect.UUIDType,
    msgspec.inspect.DecimalType,
    msgspec.inspect.DateTimeType,
    msgspec.inspect.DateType,
    msgspec.inspect.TimeType,
    msgspec.inspect.TimeDeltaType,
    msgspec.inspect.BytesType,
)
_NO_KEY = (
    "the keys of a dict have a JSON form if they are all str, int, float, UUID, Decimal, bytes, "
    "dates, times or of one enum; annotate such a dict or a list of pairs"
)
_ONE_TYPE = "annotate one of its types, optionally with None, or a dataclass with a field for each"
# By the start of msgspec's message.
_REMEDIES = {
    "Enum": "give its members only str values or only int values",
    "Literal": "use only str, int, bool and None in a Literal",
    "Type unions": _ONE_TYPE,
    "If a type union": _ONE_TYPE,
    "Type '<function": "annotate a class of yours that is derived from it",
}
_PART = re.compile(r"[Tt]ype [`'](.+)[`'] is not supported$")
_QUOTED = re.compile(r"<\w+ '?([\w.]+)[^>]*>")
"""The name in a repr such as ``<enum 'Color'>``."""


class UnstorableError(ValueError):
    """A value without an exact JSON text; the message says why."""


@runtime_checkable
class PydanticModel(Protocol):
    """A model of pydantic 2, which Headwater does not import."""

    def model_dump(self, *, mode: str, by_alias: bool) -> Any: ...

    @classmethod
    def model_validate_json(cls, json_data: bytes) -> object: ...

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]: ...


def encode_custom(value: object) -> object:
    """Return a value of a class that msgspec does not know in builtin types."""
    if type(value).__module__ == "numpy":
        builtin: object = value.tolist()  # type: ignore[attr-defined]
        return builtin
    if isinstance(value, PydanticModel):
        return value.model_dump(mode="json", by_alias=True)
    raise UnstorableError(f"{type(value).__qualname__} has no JSON form")


def decode_custom(kind: type, value: object) -> object:
    """Return a decoded JSON value as an instance of a class that msgspec does not know."""
    if isinstance(kind, type) and issubclass(kind, PydanticModel):
        # As JSON text, because a strict model takes no text for a date otherwise.
        return kind.model_validate_json(_ENCODER.encode(value))
    return value


def decoder(annotation: Any) -> Callable[[bytes | msgspec.Raw], Any]:
    """Return a decoder of JSON text into values of an annotation."""
    decode = msgspec.json.Decoder(annotation, dec_hook=decode_custom).decode
    return (lambda raw: with_defaults(decode(raw))) if leaves_defaults(annotation) else decode


def leaves_defaults(annotation: Any) -> bool:
    """Return whether with_defaults has something to do for values of an annotation."""
    return any(
        isinstance(node, DataclassType)
        and any(field.default is not NODEFAULT for field in node.fields)
        for node in _nodes(type_info(annotation), set())
    )


def with_defaults(value: T) -> T:
    """Give the dataclasses inside a value that msgspec made the defaults that it left out.

    It leaves them to the class, where an attribute finds them, but not ``vars`` nor msgspec itself:
    such an instance would lose these fields as soon as it is stored or published.
    """
    if is_dataclass(value):
        own = getattr(value, "__dict__", {})  # without one, msgspec sets all fields
        for field in fields(value):
            if field.default is not MISSING:
                own.setdefault(field.name, field.default)
    for part in _parts_of(value):
        with_defaults(part)
    return value


def has_set(value: object) -> bool:
    """Return whether a value is or has a set, whose order is another one in each process."""
    return isinstance(value, set | frozenset) or any(map(has_set, _parts_of(value)))


def _parts_of(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, list | tuple | set | frozenset):
        return value
    if isinstance(value, msgspec.Struct):
        return [getattr(value, name) for name in value.__struct_fields__]
    if is_dataclass(value):
        return [getattr(value, field.name) for field in fields(value)]
    return ()


def plain(value: object) -> Any:
    """Return the value in builtin types; raise UnstorableError if JSON would change it."""
    kind = type(value)
    if kind in _SAFE or (kind is float and math.isfinite(value)):  # type: ignore[arg-type]
        return value
    try:
        if kind is not int:
            value = msgspec.to_builtins(value, builtin_types=_BUILTINS, enc_hook=encode_custom)
        _check(value)
    except (TypeError, OverflowError, RecursionError) as error:
        raise UnstorableError(str(error)) from error
    return value


_SHOWN = 60
_DEEPEST = 200
"""The maximum nesting depth of a value; every JSON parser supports it."""

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
        raise UnstorableError("an integer beyond 64 bits is not exact in every JSON parser")


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


_ZERO = rb"\u0000"
# A backslash before it may be escaped itself.
_ZERO_CHARACTER = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def encode_exact(value: object, decode: Callable[[bytes], Any]) -> bytes:
    """Return the value's JSON text; raise UnstorableError unless it decodes to an equal value."""
    try:
        raw = _ENCODER.encode(plain(value))
        back = decode(raw)
    except (TypeError, UnicodeEncodeError, OverflowError, msgspec.ValidationError) as error:
        raise UnstorableError(str(error)) from error
    if back is not value and not _is_equal(back, value):
        if repr(back) == repr(value):
            raise UnstorableError("it would decode to a value that is not equal: is it a NaN?")
        raise UnstorableError(f"it would decode to {reprlib.repr(back)}")
    if _ZERO in raw and _ZERO_CHARACTER.search(raw):
        raise UnstorableError(
            "it contains the character U+0000, which Postgres cannot hold; remove it"
        )
    return raw


def _is_equal(back: object, value: object) -> bool:
    """Return whether two values are equal; NumPy's types count as equal to Python's."""
    try:
        if bool(back == value):
            return True
    except ValueError:  # NumPy refuses to compare arrays as a whole
        pass
    return _has_numpy(value)


def _has_numpy(value: object) -> bool:
    if type(value).__module__ == "numpy":
        return True
    if isinstance(value, dict):
        return any(map(_has_numpy, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_numpy, value))


def _bare(annotation: Any) -> Any:
    """Return ``T`` for ``T | None``, else the annotation itself."""
    if get_origin(annotation) in (Union, UnionType):
        members = [member for member in get_args(annotation) if member is not NoneType]
        if len(members) == 1:
            return members[0]
    return annotation


def _name_of(annotation: Any) -> str:
    """Return an annotation as it is written in code."""
    if annotation is NoneType:
        return "None"
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def check_supported(annotation: Any) -> None:
    """Raise TypeError with a remedy if a part of the annotation has no JSON form."""
    try:
        problem = next(filter(None, map(_problem, _nodes(type_info(annotation), set()))), None)
    except TypeError as error:  # refused by msgspec, or a protocol that is not runtime_checkable
        part = _PART.search(str(error))
        subject = _QUOTED.sub(r"\1", part[1]) if part else _name_of(annotation)
        problem = f"{subject} has no JSON form; {_remedy(str(error))}"
    if problem is not None:
        raise TypeError(problem)


def _nodes(node: object, seen: set[int]) -> Iterator[Type]:
    """Return the types inside an annotation."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, Type):
        yield node
    if isinstance(node, Type | Field):
        node = tuple(msgspec.structs.asdict(node).values())
    if isinstance(node, tuple):
        for part in node:
            yield from _nodes(part, seen)


def _problem(node: Type) -> str | None:
    if isinstance(node, DictType) and not _is_key(node.key_type):
        return _NO_KEY
    if isinstance(node, CustomType) and not _is_decodable(node.cls):
        return f"{node.cls.__qualname__} has no JSON form; {_alternative(node.cls)}"
    return None


def _is_decodable(kind: type) -> bool:
    """Return whether decode_custom returns instances of a class that msgspec does not know."""
    if issubclass(kind, PydanticModel):
        return not kind.__module__.startswith("pydantic.")  # BaseModel has no instances
    return any(issubclass(native, kind) for native in (dict, list, str, int, float))


def _is_key(node: Type) -> bool:
    """Return whether a key of an object, which is text in JSON, decodes to this type."""
    if isinstance(node, msgspec.inspect.UnionType):
        return all(isinstance(member, IntType | FloatType) for member in node.types)
    if isinstance(node, CustomType):
        return issubclass(str, node.cls)
    return isinstance(node, _KEYS)


def _remedy(refusal: str) -> str:
    """Return what to annotate instead of a type that msgspec refuses."""
    remedies = (remedy for start, remedy in _REMEDIES.items() if refusal.startswith(start))
    return next(remedies, _alternative(object))


def _alternative(kind: type) -> str:
    if kind.__module__ == "numpy":
        return "annotate float, int or list[float]; NumPy values are converted"
    for base in (str, int, float, bytes, list, dict, set, tuple):
        if issubclass(kind, base):
            return f"annotate {base.__name__}"
    return "annotate a dataclass, a TypedDict, a msgspec.Struct or a pydantic model"


_UNCONVERTED = b'{"headwater:unconverted":'


def unconverted(raw: bytes | msgspec.Raw) -> bytes:
    """Return a value of an earlier type, marked as one that could not be converted."""
    return _UNCONVERTED + bytes(raw) + b"}"


class Codec:
    """Encodes the values of one feature as JSON text and decodes them.

    ``convert`` makes a value of the annotated type from the plain JSON value of an earlier one.
    Which values these are is known from where they are stored, never from how they look.
    """

    __slots__ = ("_decode", "_simple", "annotation", "convert", "expected", "feature", "kind")

    def __init__(
        self, feature: str, annotation: Any, convert: Callable[[Any], Any] | None = None
    ) -> None:
        """Raise TypeError if values of the annotated type cannot be stored."""
        check_supported(annotation)
        self.feature = feature
        self.annotation = annotation
        self.convert = convert
        self.expected: str = _name_of(annotation)
        self.kind: Kind = _KINDS.get(_bare(annotation), "json")
        # Values of exactly these types always decode to an equal value: no check is needed.
        self._simple = annotation if annotation in (float, bool) else None
        self._decode = decoder(annotation)

    @property
    def is_optional(self) -> bool:
        """Whether None is a value of the annotated type."""
        return NoneType in get_args(self.annotation) or self.annotation in (None, NoneType, Any)

    def encode(self, value: object) -> bytes:
        """Return the value's JSON text; raise FeatureValueError if it has none."""
        if type(value) is self._simple and math.isfinite(value):  # type: ignore[arg-type]
            return _ENCODER.encode(value)
        try:
            return encode_exact(value, self._decode)
        except UnstorableError as error:
            raise FeatureValueError(
                self.feature,
                f"cannot store {reprlib.repr(value)} as {self.expected}: {error}; return or "
                "pass a value of this type, or change the annotation",
            ) from error

    def decode(self, raw: bytes | msgspec.Raw) -> Any:
        """Return the value in its annotated type."""
        if self.convert is not None and bytes(raw).startswith(_UNCONVERTED):
            raw = self.converted(bytes(raw)[len(_UNCONVERTED) : -1])
        try:
            return self._decode(raw)
        except msgspec.ValidationError as error:
            raise FeatureValueError(
                self.feature,
                f"was stored as {_shown(raw)}, which is not {self.expected}: {error}; change the "
                "annotation back, or declare the feature with convert=",
            ) from error

    def fits(self, raw: bytes | msgspec.Raw) -> bool:
        """Return whether a stored value is of the annotated type, without a conversion."""
        try:
            self._decode(raw)
        except msgspec.ValidationError:
            return False
        return True

    def converted(self, raw: bytes | msgspec.Raw) -> bytes:
        """Return the text of a value of an earlier type in the annotated one.

        Raises FeatureValueError if it cannot be converted.
        """
        if self.convert is None:
            raise FeatureValueError(
                self.feature,
                f"was stored as {_shown(raw)} with another type than {self.expected}; declare the "
                "feature with convert=, or change the annotation back",
            )
        try:
            value = self.convert(msgspec.json.decode(raw))
        except Exception as error:  # user code
            raise FeatureValueError(
                self.feature,
                f"was stored as {_shown(raw)}, which convert= cannot convert to {self.expected}: "
                f"{type(error).__name__}: {error}; correct that function",
            ) from error
        try:
            return encode_exact(value, self._decode)
        except UnstorableError as error:
            raise FeatureValueError(
                self.feature,
                f"was stored as {_shown(raw)}, which convert= converts to {reprlib.repr(value)}, "
                f"and that is not {self.expected}: {error}; correct that function",
            ) from error


def _shown(raw: bytes | msgspec.Raw) -> str:
    return bytes(raw)[:_SHOWN].decode(errors="replace")


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
