"""Lists of dicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headwater.core.duckdb_session import Session
from headwater.errors import InvalidInputError
from headwater.history.frames.entity_frame import FrameResult, Spine, TimeRemedies
from headwater.history.frames.python_values import micros_of, text_ids

_ROWS = 10_000


class DictFrame:
    """A list of dicts; the result has copies of them, with values in their annotated types."""

    remedies = TimeRemedies(
        naive="pass aware datetimes", other="pass datetimes", epoch="pass datetimes"
    )

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        for number, row in enumerate(rows):
            if not isinstance(row, Mapping):
                raise InvalidInputError(
                    f"row {number} of the frame must be a dict, not {type(row).__name__}"
                )
        self._rows = rows

    def columns(self) -> Sequence[str]:
        return list(dict.fromkeys(name for row in self._rows for name in row))

    def discard(self) -> None:
        pass

    def load(self, duck: Session, spine: Spine) -> None:
        columns: dict[str, list[Any]] = {
            f"id{number}": text_ids(entity, self._values(entity.id_field))
            for number, entity in enumerate(spine.entities)
        }
        columns["micros"] = micros_of(spine.at, self._values(spine.at))
        types = dict.fromkeys(columns, "VARCHAR") | {"row": "BIGINT", "micros": "BIGINT"}
        rows = zip(range(len(self._rows)), *columns.values(), strict=True)
        names = ("row", *columns)
        duck.load_rows("given", [dict(zip(names, row, strict=True)) for row in rows], types)
        duck.run(
            "CREATE VIEW frame AS SELECT * EXCLUDE micros, make_timestamptz(micros) AS moment"
            " FROM given"
        )

    def _values(self, name: str) -> list[Any]:
        return [row.get(name) for row in self._rows]

    def attach(self, duck: Session, result: FrameResult) -> list[dict[str, Any]]:
        cursor = duck.run(result.plain_query)
        names = [column.name for column in result.columns]
        converters = [column.to_python for column in result.columns]
        rows = iter(self._rows)
        attached = []
        while page := cursor.fetchmany(_ROWS):
            for values in page:
                converted = (
                    value if convert is None else convert(value)
                    for value, convert in zip(values, converters, strict=True)
                )
                attached.append({**next(rows), **dict(zip(names, converted, strict=True))})
        return attached
