"""Arrow tables and streams; pyarrow itself is never imported here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headwater.core.duckdb_session import Session
from headwater.history.frames.entity_frame import FrameResult, Spine, TimeRemedies

_FLOOR = "make_timestamptz(CASE WHEN {0} < 0 THEN ({0} - 999) // 1000 ELSE {0} // 1000 END)"


class ArrowStream:
    """Only the Arrow stream of a table, which DuckDB reads without pyarrow."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


class ArrowFrame:
    """A pyarrow table; the result has its columns exactly as they are."""

    remedies = TimeRemedies(
        naive='pyarrow.compute.assume_timezone(table["{0}"], "UTC") adds one',
        other='table["{0}"].cast(pyarrow.timestamp("us", "UTC")) converts texts',
        epoch='table["{0}"].cast("int64").cast(pyarrow.timestamp("s", "UTC")) converts them',
    )

    def __init__(self, table: Any) -> None:
        self._table = table

    def columns(self) -> Sequence[str]:
        return list(self._table.column_names)

    def discard(self) -> None:
        pass

    def load(self, duck: Session, spine: Spine) -> None:
        names = list(spine.columns.values())
        given = self._table.select(names).rename_columns(list(spine.columns))
        moment = "moment"
        if str(given.schema.field("moment").type).startswith("timestamp[ns, tz="):
            # DuckDB rounds nanoseconds before 1970 up.
            nanos = given["moment"].combine_chunks().view("int64")
            given = given.set_column(len(names) - 1, "moment", nanos)
            moment = f"{_FLOOR.format('moment')} AS moment"
        duck.connection.register("given", ArrowStream(given))
        duck.run(
            "CREATE TABLE frame AS SELECT row_number() OVER () - 1 AS row,"
            f" * EXCLUDE moment, {moment} FROM given"
        )

    def attach(self, duck: Session, result: FrameResult) -> Any:
        answer = duck.connection.sql(result.query).to_arrow_table()
        table = self._table
        for column, values in zip(result.columns, answer.columns, strict=True):
            table = table.append_column(column.name, values)
        return table
