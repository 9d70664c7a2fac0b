"""The points of a frame: its ids and times, checked and written to Parquet."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from headwater.core.clock import from_micros, to_micros
from headwater.core.duckdb_session import Session, scalar
from headwater.core.short_repr import ARABIC, JOINERS, NON_JOINER, VIRAMAS
from headwater.declarations.features import EntityDef
from headwater.errors import InvalidInputError
from headwater.history.frames.entity_frame import Spine, TimeRemedies
from headwater.model.values import LONGEST_ID

_AWARE = "TIMESTAMP WITH TIME ZONE"
_TEXTS = ("VARCHAR", "ENUM", "UUID")
_INTEGERS = frozenset(
    {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"}
    | {"UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"}
)
_NUMBERS = _INTEGERS | {"FLOAT", "DOUBLE"}
# The characters that str.isprintable refuses, except unassigned ones.
_UNPRINTABLE = r"[\p{C}\p{Zl}\p{Zp}]|[^\P{Zs} ]"
# Texts with joiners, as `is_printable` accepts them; RE2 cannot look around a character.
_SPELLED = (
    f"([{ARABIC}]({NON_JOINER}?[{ARABIC}])*|[{VIRAMAS}][{JOINERS}]?"
    r"|[^\p{C}\p{Zl}\p{Zp}\p{Zs}]| )*"
)
INVALID_TEXT = (
    f"length(value) NOT BETWEEN 1 AND {LONGEST_ID} OR (regexp_matches(value, '{_UNPRINTABLE}')"
    f" AND NOT regexp_full_match(value, '{_SPELLED}'))"
)
_INVALID_NUMBER = "NOT regexp_full_match(value, '0|-?[1-9][0-9]*')"


def write_points(duck: Session, spine: Spine, remedies: TimeRemedies, files: Sequence[Path]) -> int:
    """Check the table ``frame`` and write the points of each entity; return the number of rows."""
    count = check_rows(duck, spine, remedies)
    for number, file in enumerate(files):
        duck.write(
            f"SELECT row, CAST(id{number} AS VARCHAR) AS entity_id,"
            " epoch_us(CAST(moment AS TIMESTAMPTZ)) AS at FROM frame",
            file,
        )
    return count


def check_rows(duck: Session, spine: Spine, remedies: TimeRemedies) -> int:
    """Raise InvalidInputError if a row of ``frame`` has an invalid id or time; return their number.

    An empty table is valid, its columns may have any type.
    """
    count: int = scalar(duck.run("SELECT count(*) FROM frame"))
    if count:
        _check_times(duck, spine, remedies)
        for number, entity in enumerate(spine.entities):
            _check_ids(duck, f"id{number}", entity)
    return count


def _check_times(duck: Session, spine: Spine, remedies: TimeRemedies) -> None:
    _check_no_nulls(duck, "moment", spine.at, "time")
    kind = _type_of(duck, "moment")
    if kind != _AWARE:
        raise InvalidInputError(_time_problem(kind, remedies).format(spine.at))
    endless = _first(duck, "moment", "NOT isfinite(value)", "CAST(value AS VARCHAR)")
    if endless is not None:
        raise InvalidInputError(
            f"row {endless[0]}: {endless[1]} in column {spine.at!r} is not a time"
        )
    if spine.earliest is not None and (early := _outside("<", duck, spine.earliest)):
        raise InvalidInputError(
            f"row {early[0]} is of {from_micros(early[1]).isoformat()}{_others(early)}, and the "
            f"history before {spine.earliest.isoformat()} was pruned; leave such rows out, or read "
            "from an export that still has it, with exported="
        )
    if spine.latest is not None and (late := _outside(">", duck, spine.latest)):
        raise InvalidInputError(
            f"row {late[0]}: {from_micros(late[1]).isoformat()} in column {spine.at!r} is in the "
            f"future{_others(late)}; correct such rows, or leave them out"
        )


def _outside(comparison: str, duck: Session, limit: datetime) -> tuple[int, Any, int] | None:
    return _first(duck, "epoch_us(moment)", f"value {comparison} {to_micros(limit)}")


def _time_problem(kind: str, remedies: TimeRemedies) -> str:
    """Return problem and remedy of a column of another type; ``{0}`` stands for its name."""
    if kind.startswith("TIMESTAMP") or kind == "DATE":
        return f"the times in column {{0!r}} have no time zone; {remedies.naive}"
    problem = f"column {{0!r}} holds {_described(kind)}, not times"
    if kind in _NUMBERS:
        return f"{problem}; if they are seconds since 1970, {remedies.epoch}"
    return f"{problem}; {remedies.other}"


def _check_ids(duck: Session, column: str, entity: EntityDef) -> None:
    _check_no_nulls(duck, column, entity.id_field)
    kind = _type_of(duck, column)
    if entity.id_type is int and kind in _INTEGERS:
        return
    if not kind.startswith(_TEXTS):
        expected = "whole numbers" if entity.id_type is int else "text"
        raise InvalidInputError(
            f"column {entity.id_field!r} holds {_described(kind)}, but the ids of {entity.name} "
            f"are {expected}; convert the column"
        )
    check, expected = (
        (_INVALID_NUMBER, "a whole number such as 7")
        if entity.id_type is int
        else (INVALID_TEXT, f"printable text of 1 to {LONGEST_ID} characters")
    )
    misfit = _first(duck, f"CAST({column} AS VARCHAR)", check)
    if misfit is not None:
        raise InvalidInputError(
            f"row {misfit[0]}: {entity.id_field} must be {expected}, not "
            f"{reprlib.repr(misfit[1])}{_others(misfit)}; correct such rows, or leave them out"
        )


def _check_no_nulls(duck: Session, column: str, name: str, content: str = "value") -> None:
    missing = _first(duck, column, "value IS NULL", "NULL")
    if missing is not None:
        raise InvalidInputError(
            f"row {missing[0]} has no {content} in column {name!r}{_others(missing)}; fill it in, "
            "or leave such rows out"
        )


def _type_of(duck: Session, column: str) -> str:
    return str(duck.connection.table("frame").select(column).types[0])


def _first(
    duck: Session, value: str, condition: str, shown: str = "value"
) -> tuple[int, Any, int] | None:
    """Return row and value of the first row that fulfils a condition, and the number of others."""
    row = duck.run(
        f"SELECT min(row), arg_min({shown}, row), count(*) - 1"
        f" FROM (SELECT row, {value} AS value FROM frame) WHERE {condition}"
    ).fetchone()
    return None if row is None or row[0] is None else (row[0], row[1], row[2])


def _others(first: tuple[int, Any, int]) -> str:
    return f" (and {first[2]} more)" if first[2] else ""


def _described(kind: str) -> str:
    names = {"VARCHAR": "text", "DOUBLE": "floats", "INTEGER": "integers", "BIGINT": "integers"}
    return names.get(kind, kind)
