"""The types of result columns: the DuckDB type of a feature's values, by their annotation."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.inspect import (
    CollectionType,
    EnumType,
    LiteralType,
    Metadata,
    NoneType,
    Type,
    UnionType,
    type_info,
)

from headwater.core.codec import Kind
from headwater.declarations.features import FeatureDef

JSON = "JSON"
"""The type of values that a table holds as JSON text."""

_KINDS: dict[Kind, str] = {
    "int": "BIGINT",
    "float": "DOUBLE",
    "bool": "BOOLEAN",
    "text": "VARCHAR",
    "time": "TIMESTAMPTZ",
}
_NODES: dict[type[Type], str] = {
    msgspec.inspect.IntType: "BIGINT",
    msgspec.inspect.FloatType: "DOUBLE",
    msgspec.inspect.BoolType: "BOOLEAN",
    msgspec.inspect.StrType: "VARCHAR",
    msgspec.inspect.DateTimeType: "TIMESTAMPTZ",
    msgspec.inspect.DateType: "DATE",
    # These have an exact text, and no type that every kind of table knows.
    msgspec.inspect.UUIDType: "VARCHAR",
    msgspec.inspect.DecimalType: "VARCHAR",
    msgspec.inspect.TimeType: "VARCHAR",
    msgspec.inspect.TimeDeltaType: "VARCHAR",
    msgspec.inspect.BytesType: "VARCHAR",
}
_ITEMS = frozenset({"BIGINT", "DOUBLE", "BOOLEAN", "VARCHAR"})
"""The types whose lists have the same form in every kind of table."""
_CONSTANTS: dict[frozenset[type], str] = {frozenset({str}): "VARCHAR", frozenset({int}): "BIGINT"}


def column_type(feature: FeatureDef) -> str:
    """Return the DuckDB type of a feature's values; JSON if they have no simpler one."""
    return _KINDS.get(feature.codec.kind) or _type(type_info(feature.codec.annotation))


def from_json(value: str, type_: str) -> str:
    """Return the SQL that turns JSON text into a type."""
    if type_ == JSON:
        return value
    if type_.endswith("[]"):
        return f"CAST(CAST({value} AS JSON) AS {type_})"
    return f"CAST({value} ->> '$' AS {type_})"


def _type(node: Type) -> str:
    match node:
        case Metadata():
            return _type(node.type)
        case UnionType():
            members = [member for member in node.types if not isinstance(member, NoneType)]
            return _type(members[0]) if len(members) == 1 else JSON
        case EnumType():
            return _constants_type(member.value for member in node.cls)
        case LiteralType():
            return _constants_type(node.values)
        case CollectionType():
            item = _type(node.item_type)
            return f"{item}[]" if item.rstrip("[]") in _ITEMS else JSON
    return _NODES.get(type(node), JSON)


def _constants_type(values: Iterable[object]) -> str:
    return _CONSTANTS.get(frozenset(map(type, values)), JSON)
