"""The options of windows: check them, and name the features that they declare."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from operator import attrgetter
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec.inspect import (
    AnyType,
    BoolType,
    DateType,
    EnumType,
    FloatType,
    IntType,
    LiteralType,
    StrType,
    UUIDType,
    type_info,
)

from headwater.core.codec import Codec, plain
from headwater.declarations.filters import ORDERING, comparisons, matches, parse_filters
from headwater.declarations.windows import WindowDef, WindowMember, form_of
from headwater.errors import FeatureValueError, InvalidInputError
from headwater.ports import Compare
from headwater.ports.vectors import Operator, Scalar
from headwater.windows.plan import (
    NUMERIC,
    ORDERED,
    ZERO,
    Aggregate,
    Member,
    WindowPlan,
    check_unique,
    parse_aggregate,
    parse_window,
)

DEFAULT_MAX_KEYS = 32
MOST_KEYS = 1_000
_TYPES: Mapping[str, Any] = {
    **dict.fromkeys(("count", "distinct"), int),
    **dict.fromkeys(("avg", "stddev", "percentile", "rate"), float),
}
_ONE_FORM = (float, datetime)
_NUMBERS = (IntType, FloatType)
_COMPARED = (AnyType, BoolType, DateType, EnumType, LiteralType, StrType, UUIDType, *_NUMBERS)
"""The types whose values have one form in JSON, which filters compare with."""
_UNITS = {"count": "", "distinct": "", "rate": "1/s"}


class WindowOptions(msgspec.Struct, frozen=True):
    """The options of the decorator that declare windows, as they were passed."""

    window: Any
    aggregate: Any
    hop: Any = None
    where: Any = None
    by: Any = None
    value: Any = None
    max_keys: Any = None


def contribution_type(annotation: Any) -> Any:
    """Return the type of contributions: the annotation without None, which contributes nothing."""
    if get_origin(annotation) in (Union, UnionType):
        others = [kind for kind in get_args(annotation) if kind is not type(None)]
        return Union[tuple(others)]  # noqa: UP007 - of a tuple
    return annotation


Family = tuple[WindowDef, dict[str, tuple[WindowMember, Codec]]]
"""Windows, and the features that they declare, by name."""


def declared_windows(name: str, annotation: Any, options: WindowOptions) -> Family:
    """Return the windows of a family, and its features by name; raise InvalidInputError."""
    windows = tuple(parse_window(one, options.hop) for one in _several("window", options.window))
    aggregates = tuple(map(parse_aggregate, _several("aggregate", options.aggregate)))
    check_unique([window.name for window in windows], "window")
    check_unique([aggregate.name for aggregate in aggregates], "aggregate")
    where = parse_filters(options.where)
    fields = contribution_fields(annotation)
    if where is not None and fields is None:
        raise InvalidInputError(
            "where= needs contributions with fields; return a dataclass, a TypedDict or a dict"
        )
    compared = [] if where is None else list(comparisons(where))
    filtered = sorted({compare.field for compare in compared})
    for option, field in (
        ("value", options.value),
        ("by", options.by),
        *(("where", field) for field in filtered),
    ):
        _check_field(option, field, annotation, fields)
    for compare in compared:
        _check_operands(compare, _field_type(fields, compare.field))
    kind = annotation if options.value is None else _field_type(fields, options.value)
    for aggregate in aggregates:
        _check_type(aggregate, kind, is_whole=options.value is None and fields is not None)
    value_form = form_of(kind)
    by_form = None if options.by is None else form_of(_field_type(fields, options.by))
    used = {options.value, options.by, *filtered}
    defaults = {name: value for name, value in _defaults(annotation).items() if name in used}
    # What states of before did not depend on is left out while it is not used: they stay valid.
    forms = [defaults, by_form is not None, value_form is not None and kind not in _ONE_FORM]
    chosen = [(options.value, options.by, where)] if fields is not None else []
    plan = WindowPlan(
        windows,
        aggregates,
        is_int=kind is int,
        is_keyed=options.by is not None,
        max_keys=_max_keys(options),
        selection="".join(map(repr, chosen + ([forms] if any(forms) else []))),
    )
    members = {
        f"{name}_{aggregate.name}_{window.name}": Member(window, aggregate)
        for window in windows
        for aggregate in aggregates
    }
    definition = WindowDef(
        plan,
        tuple(members),
        options.value,
        options.by,
        None if where is None else partial(matches, where),
        value_form,
        by_form,
        defaults or None,
        filters=options.where or None,
    )
    features = {}
    for member_name, member in members.items():
        type_ = _result_type(member.aggregate, kind)
        if options.by is not None:
            type_ = dict[str, type_]  # type: ignore[valid-type]
        features[member_name] = (
            WindowMember(name, member.window, member.aggregate, definition),
            Codec(member_name, type_),
        )
    return definition, features


def unit_of(aggregate: Aggregate, unit: str) -> str:
    """Return the unit of an aggregate of contributions with a unit."""
    return _UNITS.get(aggregate.kind, unit)


def defaults_of(features: Mapping[str, tuple[WindowMember, Codec]], default: Any) -> dict[str, Any]:
    """Return the default of each feature of a family that may have no value and that it fits.

    Raise FeatureValueError if it fits none of them.
    """
    if default is None:
        return {}
    empty = {
        name: codec
        for name, (member, codec) in features.items()
        if member.aggregate.kind not in ZERO
    }
    refused: FeatureValueError | None = None
    defaults = {}
    for name, codec in empty.items():
        try:
            codec.encode(default)
            defaults[name] = default
        except FeatureValueError as error:
            refused = refused or error
    if not defaults and refused is not None:
        raise refused
    if not empty:
        raise InvalidInputError("count, sum, distinct and rate of nothing are 0; remove default=")
    return defaults


def _several(option: str, given: Any) -> list[Any]:
    is_one = isinstance(given, str) or not isinstance(given, Iterable)
    values = [given] if is_one else list(given)
    if not values:
        example = ["1h", "7d"] if option == "window" else ["count", "sum"]
        raise InvalidInputError(f"{option}= is empty; write one or several, such as {example}")
    return values


def _max_keys(options: WindowOptions) -> int:
    if options.by is None:
        if options.max_keys is not None:
            raise InvalidInputError("max_keys= needs by=, the field whose values are the keys")
        return 0
    most = DEFAULT_MAX_KEYS if options.max_keys is None else options.max_keys
    if type(most) is not int or not 1 <= most <= MOST_KEYS:
        raise InvalidInputError(f"max_keys must be a whole number from 1 to {MOST_KEYS}")
    return most


def contribution_fields(annotation: Any) -> dict[str, Any] | None:
    """Return the fields of contributions and their types; None if they have none.

    The empty name stands for fields that are not declared.
    """
    if get_origin(annotation) is dict:
        return {"": get_args(annotation)[1]}
    if annotation in (dict, Any):
        return {"": Any}
    info = type_info(annotation)
    if isinstance(
        info,
        msgspec.inspect.StructType | msgspec.inspect.DataclassType | msgspec.inspect.TypedDictType,
    ):
        hints = get_type_hints(info.cls)
        return {field.encode_name: hints[field.name] for field in info.fields}
    return None


def _defaults(annotation: Any) -> dict[str, Any]:
    """Return the defaults of the fields of contributions, as they are in JSON."""
    info = type_info(annotation)
    if not isinstance(info, msgspec.inspect.StructType | msgspec.inspect.DataclassType):
        return {}
    return {
        field.encode_name: plain(field.default)
        for field in sorted(info.fields, key=attrgetter("encode_name"))
        if field.default is not msgspec.NODEFAULT
    }


def _field_type(fields: Mapping[str, Any] | None, field: str) -> Any:
    fields = fields or {}
    return contribution_type(fields.get(field, fields.get("", Any)))


def _check_field(
    option: str, field: Any, annotation: Any, fields: Mapping[str, Any] | None
) -> None:
    if field is None:
        return
    if fields is None:
        raise InvalidInputError(
            f"{option}={field!r} needs contributions with fields, not {annotation!r}; return a "
            "dataclass, a TypedDict or a dict"
        )
    is_struct = isinstance(annotation, type) and issubclass(annotation, msgspec.Struct)
    if is_struct and annotation.__struct_config__.omit_defaults:
        raise InvalidInputError(
            f"{option}={field!r}: contributions lack fields that have their default; declare "
            f"{annotation.__name__} without omit_defaults"
        )
    if field not in fields and "" not in fields:
        known = ", ".join(fields)
        raise InvalidInputError(
            f"{option}= names {field!r}, and contributions have the fields {known}"
        )


def _check_operands(compare: Compare, kind: Any) -> None:
    """Raise InvalidInputError if no value of a type can be what a filter compares it with."""
    operands: Any = compare.value if compare.operator == "in" else [compare.value]
    for operand in operands:
        parts = _parts(kind)
        if operand is None or any(_may_be(operand, part, compare.operator) for part in parts):
            continue
        name = kind.__name__ if isinstance(kind, type) else kind
        raise InvalidInputError(
            f"where= compares {compare.field!r} with {operand!r}, which a value of type {name} can "
            "never be; filters know texts, numbers, booleans, dates and UUIDs as JSON has them: "
            "for any other type, return None from the function for what does not count"
        )


def _parts(kind: Any) -> Iterator[Any]:
    """Yield the types that a value, or an element of a value, may have."""
    if get_origin(kind) in (Union, UnionType, list, set, frozenset, tuple):
        for part in set(get_args(kind)) - {...}:
            yield from _parts(part)
    else:
        yield kind


def _may_be(operand: Scalar, part: Any, operator: Operator) -> bool:
    info = type_info(part)
    if operator in ORDERING and not isinstance(info, DateType):
        types = (StrType,) if isinstance(operand, str) else _NUMBERS
        return isinstance(info, (AnyType, *types))
    try:
        value = msgspec.convert(operand, part)
    except msgspec.ValidationError:
        return False
    return isinstance(info, _COMPARED) and bool(msgspec.to_builtins(value) == operand)


def _check_type(aggregate: Aggregate, kind: Any, *, is_whole: bool) -> None:
    if aggregate.kind in NUMERIC and kind not in (int, float):
        needed = "numbers; annotate int or float"
    elif aggregate.kind in ORDERED and kind not in (int, float, str):
        needed = "numbers or texts; annotate int, float or str"
    else:
        return
    field = ", or name the field that counts with value=" if is_whole else ""
    raise InvalidInputError(f"{aggregate.text!r} needs {needed}{field}")


def _result_type(aggregate: Aggregate, kind: Any) -> Any:
    if aggregate.kind in _TYPES:
        return _TYPES[aggregate.kind]
    return list[kind] if aggregate.kind == "lasts" else kind
