"""How requested features are answered: the series to read, and the columns of the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from headwater.core.clock import from_micros
from headwater.core.duckdb_session import text
from headwater.declarations.features import EntityDef, FeatureDef
from headwater.errors import InvalidInputError
from headwater.history.column_types import column_type, from_json
from headwater.ports import FrameColumn

AS_OF = "__as_of"
"""The end of the name of a column with the moment that a value is of."""


class PlannedColumn(msgspec.Struct, frozen=True):
    """A requested feature, and the place of its value among the columns of an answer."""

    feature: FeatureDef
    place: int


class ColumnPlan(msgspec.Struct, frozen=True):
    """How the requested features of one entity are answered.

    ``reads`` are read from history into the columns ``v0``, ``a0``, ``v1``… of an answer. A result
    refers to one of them by its place, or to a column that was added to the answer afterwards.
    """

    entity: EntityDef
    reads: Sequence[FrameColumn]
    results: Sequence[PlannedColumn]


class ResultColumn(msgspec.Struct, frozen=True):
    """A column of the result: its name, its DuckDB type, and the SQL of its values.

    ``plain`` is the SQL of values that ``to_python``, if there is one, turns into Python's.
    """

    name: str
    type: str
    sql: str
    plain: str
    to_python: Callable[[Any], Any] | None = None


def plan_columns(features: Sequence[FeatureDef]) -> list[ColumnPlan]:
    """Return a plan for each entity of the features."""
    by_entity: dict[str, list[FeatureDef]] = {}
    for feature in features:
        _check_has_history(feature)
        by_entity.setdefault(feature.entity.name, []).append(feature)
    return [
        ColumnPlan(
            group[0].entity,
            [FrameColumn(each.series, each.codec.kind, each.ttl) for each in group],
            [PlannedColumn(each, place) for place, each in enumerate(group)],
        )
        for group in by_entity.values()
    ]


def _check_has_history(feature: FeatureDef) -> None:
    if feature.codec.kind == "none":
        raise InvalidInputError(
            f"feature {feature.name!r} is annotated `-> None`, so it never has a value; leave it "
            "out"
        )
    if not feature.kept:
        raise InvalidInputError(
            f"feature {feature.name!r} has no history, because it is computed at every read; give "
            "it a ttl, a trigger or a refresh"
        )


def result_columns(
    plans: Sequence[ColumnPlan], order: Sequence[str], *, with_as_of: bool
) -> list[ResultColumn]:
    """Return the columns of the result in the order of the requested features.

    In their SQL, ``e0``, ``e1``… are the answers of the plans.
    """
    planned = {
        column.feature.name: (f"e{number}", column)
        for number, plan in enumerate(plans)
        for column in plan.results
    }
    found = []
    for answer, column in (planned[name] for name in order):
        found.append(_value_column(answer, column))
        if with_as_of:
            found.append(_as_of_column(answer, column))
    return found


def _value_column(answer: str, column: PlannedColumn) -> ResultColumn:
    feature, value = column.feature, f"{answer}.v{column.place}"
    kind, type_ = feature.codec.kind, column_type(feature)
    sql, plain = (from_json(value, type_), value) if kind == "json" else (value, value)
    if feature.default is not None:
        default = text(feature.codec.encode(feature.default).decode())
        is_missing = f"CASE WHEN {answer}.a{column.place} IS NULL THEN"
        sql = f"{is_missing} {from_json(default, type_)} ELSE {sql} END"
        plain = f"{is_missing} {default} ELSE {value} END" if kind == "json" else sql
    if kind == "json":
        return ResultColumn(feature.name, type_, sql, plain, _decode(feature))
    if kind == "time":
        return ResultColumn(feature.name, type_, sql, f"epoch_us({plain})", _from_micros)
    return ResultColumn(feature.name, type_, sql, plain)


def _as_of_column(answer: str, column: PlannedColumn) -> ResultColumn:
    micros = f"{answer}.a{column.place}"
    name, moment = f"{column.feature.name}{AS_OF}", f"make_timestamptz({micros})"
    return ResultColumn(name, "TIMESTAMPTZ", moment, micros, _from_micros)


def _decode(feature: FeatureDef) -> Callable[[Any], Any]:
    decode = feature.codec.decode
    return lambda value: None if value is None else decode(value.encode())


def _from_micros(value: Any) -> Any:
    return None if value is None else from_micros(value)
