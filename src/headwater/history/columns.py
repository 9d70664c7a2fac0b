"""How requested features are answered: series to read, columns and their types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any

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

from headwater.core.clock import from_micros
from headwater.core.codec import Codec, Kind
from headwater.core.sql_literals import text
from headwater.declarations.features import EntityDef, FeatureDef
from headwater.features.read_plan import check_readable
from headwater.history.one_value import check_has_past, check_has_values
from headwater.model.values import UNDATED
from headwater.ports import FrameColumn

AS_OF = "__as_of"
"""The end of the name of a column with the moment that a value is of."""

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


class ColumnReading(msgspec.Struct, frozen=True):
    """Features of one entity that are read from history in one go, perhaps as JSON text."""

    features: Sequence[FeatureDef]
    known: bool
    as_json: bool = False

    @property
    def columns(self) -> list[FrameColumn]:
        """The columns to read, in the order of the features."""
        return [
            FrameColumn(
                feature.series,
                "json" if self.as_json else feature.codec.kind,
                feature.ttl,
                feature.earlier_ttls if self.known else (),
            )
            for feature in self.features
        ]


class ColumnPlan(msgspec.Struct, frozen=True):
    """How the requested features of one entity are answered.

    There is an answer for each reading and, if features are computed, one for all of these.
    """

    entity: EntityDef
    readings: Sequence[ColumnReading]
    computed: Sequence[FeatureDef]


class PlannedColumn(msgspec.Struct, frozen=True):
    """A requested feature, its answer among all answers, and its place in that one."""

    feature: FeatureDef
    answer: int
    place: int
    is_computed: bool


class ResultColumn(msgspec.Struct, frozen=True):
    """A column of the result: its name, its DuckDB type, and the SQL of its values.

    ``plain`` is the SQL of values that ``to_python``, if there is one, turns into Python's.
    """

    name: str
    type: str
    sql: str
    plain: str
    to_python: Callable[[Any], Any] | None = None


def plan_columns(features: Sequence[FeatureDef], *, known: bool) -> list[ColumnPlan]:
    """Return a plan for each entity of the features."""
    by_entity: dict[str, list[FeatureDef]] = {}
    for feature in features:
        check_has_values(feature)
        check_readable(feature)
        check_has_past(feature)
        by_entity.setdefault(feature.entity.name, []).append(feature)
    return [_plan(group, known=known) for group in by_entity.values()]


def _plan(features: Sequence[FeatureDef], *, known: bool) -> ColumnPlan:
    # Python code makes these values: the function, a template, or a conversion.
    computed = [
        feature
        for feature in features
        if feature.window is None
        and (feature.derived or not feature.has_history or feature.codec.convert)
    ]
    readings: dict[bool, list[FeatureDef]] = {}
    for feature in features:
        if feature not in computed:
            readings.setdefault(known or is_of_its_computation(feature), []).append(feature)
    return ColumnPlan(
        features[0].entity,
        [ColumnReading(some, is_known) for is_known, some in readings.items()],
        computed,
    )


def is_of_its_computation(feature: FeatureDef) -> bool:
    """Return whether a value counts from its computation on, and not from its ``as_of``.

    A read computed it, perhaps from other values that were newer than its ``as_of``.
    """
    return feature.has_history and not feature.stored


def result_columns(
    plans: Sequence[ColumnPlan], order: Sequence[str], *, with_as_of: bool
) -> list[ResultColumn]:
    """Return the columns of the result in the order of the requested features.

    In their SQL, ``e0``, ``e1``… are the answers of the plans.
    """
    planned: dict[str, PlannedColumn] = {}
    answers = count()
    for plan in plans:
        groups = [(reading.features, False) for reading in plan.readings]
        groups += [(plan.computed, True)] if plan.computed else []
        for features, is_computed in groups:
            answer = next(answers)
            for place, feature in enumerate(features):
                planned[feature.name] = PlannedColumn(feature, answer, place, is_computed)
    columns = []
    for column in (planned[name] for name in order):
        columns.append(_value_column(column))
        if with_as_of:
            columns.append(_as_of_column(column))
    return columns


def _value_column(column: PlannedColumn) -> ResultColumn:
    feature, value = column.feature, f"e{column.answer}.v{column.place}"
    kind, type_ = feature.codec.kind, column_type(feature.codec)
    sql, plain = (from_json(value, type_), value) if kind == "json" else (value, value)
    if feature.default is not None and not column.is_computed:
        default = text(feature.codec.encode(feature.default).decode())
        is_missing = f"CASE WHEN e{column.answer}.a{column.place} IS NULL THEN"
        sql = f"{is_missing} {from_json(default, type_)} ELSE {sql} END"
        plain = f"{is_missing} {default} ELSE {value} END" if kind == "json" else sql
    if kind == "json":
        return ResultColumn(feature.name, type_, sql, plain, _decode(feature))
    if kind == "time":
        return ResultColumn(feature.name, type_, sql, f"epoch_us({plain})", _from_micros)
    return ResultColumn(feature.name, type_, sql, plain)


def _as_of_column(column: PlannedColumn) -> ResultColumn:
    micros = f"e{column.answer}.a{column.place}"
    if is_of_its_computation(column.feature) and not column.is_computed:
        micros = f"nullif({micros}, {UNDATED})"
    name, moment = f"{column.feature.name}{AS_OF}", f"make_timestamptz({micros})"
    return ResultColumn(name, "TIMESTAMPTZ", moment, micros, _from_micros)


def _decode(feature: FeatureDef) -> Callable[[Any], Any]:
    decode = feature.codec.decode
    return lambda value: None if value is None else decode(value.encode())


def _from_micros(value: Any) -> Any:
    return None if value is None else from_micros(value)


def column_type(codec: Codec) -> str:
    """Return the DuckDB type of values; JSON if they have no simpler one."""
    return _KINDS.get(codec.kind) or _type(type_info(codec.annotation))


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
